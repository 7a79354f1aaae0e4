"""Plan, validate, implement, judge, and again until it is good enough or the means are used up."""
