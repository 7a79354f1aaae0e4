-- Schema 2. Workers that listen on the channel `detent` hear of runs anybody may take; the payload is the schema.

CREATE FUNCTION tell_of_free_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('detent', TG_TABLE_SCHEMA);    -- told once for each transaction, at its commit
    RETURN NULL;
END
$$;
CREATE TRIGGER runs_free AFTER INSERT OR UPDATE OF owner, status ON runs
    FOR EACH ROW WHEN (NEW.owner IS NULL AND NEW.status = 'running') EXECUTE FUNCTION tell_of_free_run();
