BEGIN TRANSACTION;
CREATE TABLE blob_refs (                    -- a blob goes when no run refers to it
    run  INTEGER NOT NULL,
    hash TEXT    NOT NULL,
    PRIMARY KEY (run, hash)
) WITHOUT ROWID;
CREATE TABLE blobs (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
);
CREATE TABLE definitions (
    fingerprint TEXT PRIMARY KEY,
    body        TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO "definitions" VALUES('3655844c1736a4d2','{"name":"part","version":1,"start":"work","states":["work","done"],"moves":{"work":[{"to":"done"}]},"ends":{"done":"succeeded"},"may_end":[],"self_moves":"error"}');
INSERT INTO "definitions" VALUES('9f7c5735d5b46db3','{"name":"kept","version":1,"start":"weigh","states":["weigh","split","ask","book","done","refused"],"moves":{"weigh":[{"to":"split"}],"split":[{"to":"ask"}],"ask":[{"to":"book"},{"to":"refused"}],"book":[{"to":"done"}]},"ends":{"done":"succeeded","refused":"failed"},"may_end":[],"self_moves":"error"}');
CREATE TABLE edges (                        -- moves added up per flow and day
    flow     TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    frm      TEXT    NOT NULL,
    "to"     TEXT    NOT NULL,
    count    INTEGER NOT NULL,
    seconds  REAL    NOT NULL,
    fastest  REAL    NOT NULL,
    slowest  REAL    NOT NULL,
    tokens   INTEGER NOT NULL,
    cost_usd REAL    NOT NULL,
    PRIMARY KEY (flow, day, frm, "to")
) WITHOUT ROWID;
INSERT INTO "edges" VALUES('kept',20773,'split','ask',1,1.70565410007839091122e-02,1.70565410007839091122e-02,1.70565410007839091122e-02,0,0.0);
INSERT INTO "edges" VALUES('kept',20773,'weigh','split',1,2.08798500170814804732e-03,2.08798500170814804732e-03,2.08798500170814804732e-03,0,0.0);
INSERT INTO "edges" VALUES('part',20773,'work','done',2,1.92580009752418845891e-05,4.6770001063123345375e-06,1.45810008689295500516e-05,0,0.0);
CREATE TABLE effects (                      -- the ledger, by what an effect is
    run   INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    tool  TEXT    NOT NULL,
    state TEXT    NOT NULL,
    seq   INTEGER NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;
INSERT INTO "effects" VALUES(1,'9858a1095ac8aeb65809728c','book','done',7);
CREATE TABLE entries (
    key   INTEGER PRIMARY KEY,
    at    REAL    NOT NULL,
    epoch INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    body  TEXT    NOT NULL
);
INSERT INTO "entries" VALUES(16777217,1.79484073050751185415e+09,1,'started','{"flow":"kept","state":"weigh","machine":"kept","version":1,"fingerprint":"9f7c5735d5b46db3","data":{"parcel":"p"},"tags":["kept"]}');
INSERT INTO "entries" VALUES(16777218,1.79484073051326727867e+09,1,'noted','{"topic":"weighed","body":{"kg":4}}');
INSERT INTO "entries" VALUES(16777219,1794840730.5139,1,'tagged','{"add":["heavy"]}');
INSERT INTO "entries" VALUES(16777220,1.79484073051472306252e+09,1,'recorded','{"key":"scale","value":4}');
INSERT INTO "entries" VALUES(16777221,1.79484073051555824279e+09,1,'proposed','{"step":"weigh","outcome":{"set":{"kg":4}},"effects":[{"key":"9858a1095ac8aeb65809728c","tool":"book","args":{"parcel":"first"}}],"duration":0.0018748980000964366}');
INSERT INTO "entries" VALUES(16777222,1.79484073051555824279e+09,1,'effect_begun','{"key":"9858a1095ac8aeb65809728c","tool":"book","worker":"w1","seconds":60.0}');
INSERT INTO "entries" VALUES(16777223,1.79484073051621508595e+09,1,'effect_done','{"key":"9858a1095ac8aeb65809728c","tool":"book","receipt":{"number":1},"duration":0.00021308700161171146}');
INSERT INTO "entries" VALUES(16777224,1.79484073051621508595e+09,1,'moved','{"frm":"weigh","to":"split","set":{"kg":4},"duration":0.002087985001708148,"looked":[]}');
INSERT INTO "entries" VALUES(16777225,1.79484073052685070039e+09,1,'child_ended','{"run":"waits.a","status":"succeeded","steps":1,"seconds":1.458100086892955e-05}');
INSERT INTO "entries" VALUES(16777226,1.79484073053054308892e+09,1,'child_ended','{"run":"waits.b","status":"succeeded","steps":1,"seconds":4.6770001063123345e-06}');
INSERT INTO "entries" VALUES(16777227,1.79484073053384017939e+09,1,'moved','{"frm":"split","to":"ask","set":{"sum":30},"duration":0.01705654100078391}');
INSERT INTO "entries" VALUES(16777228,1.7948407305351777077e+09,1,'held','{"name":"ok","why":"person","question":"Book it?","choices":["yes","no"],"duration":5.7145000027958304e-05}');
INSERT INTO "entries" VALUES(33554433,1.7948407305210316181e+09,1,'started','{"flow":"part","state":"work","machine":"part","version":1,"fingerprint":"3655844c1736a4d2","data":{"n":1},"parent":"waits"}');
INSERT INTO "entries" VALUES(33554434,1.79484073052295112606e+09,1,'moved','{"frm":"work","to":"done","set":{"n":10},"duration":1.458100086892955e-05,"status":"succeeded"}');
INSERT INTO "entries" VALUES(50331649,1.79484073052151727671e+09,1,'started','{"flow":"part","state":"work","machine":"part","version":1,"fingerprint":"3655844c1736a4d2","data":{"n":2},"parent":"waits"}');
INSERT INTO "entries" VALUES(50331650,1.79484073052302670484e+09,1,'moved','{"frm":"work","to":"done","set":{"n":20},"duration":4.6770001063123345e-06,"status":"succeeded"}');
CREATE TABLE folds (                        -- latest saved fold of long runs
    run  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE marks (
    key     TEXT PRIMARY KEY,
    value   TEXT    NOT NULL,
    version INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE runs (
    number      INTEGER PRIMARY KEY,        -- order of creation
    id          TEXT    NOT NULL UNIQUE,
    flow        TEXT    NOT NULL,
    machine     TEXT    NOT NULL,
    parent      TEXT,
    created_at  REAL    NOT NULL,
    seq         INTEGER NOT NULL,           -- last entry: half of the fence
    epoch       INTEGER NOT NULL,           -- take-overs: the other half
    owner       TEXT,                       -- worker that drives it
    asked       TEXT,                       -- request left for that worker
    status      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    updated_at  REAL    NOT NULL,
    wake_at     REAL,
    steps       INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    cost_usd    REAL    NOT NULL,
    reason      TEXT,
    error       TEXT,
    waits       TEXT,                       -- open holds, JSON
    version     INTEGER NOT NULL,
    fingerprint TEXT    NOT NULL
);
INSERT INTO "runs" VALUES(1,'waits','kept','kept',NULL,1.79484073050751185415e+09,12,1,NULL,NULL,'waiting','ask',1.7948407305351777077e+09,NULL,2,0,0.0,NULL,NULL,'[{"name":"ok","token":"ok@12","why":"person","question":"Book it?","choices":["yes","no"],"wake_at":null}]',1,'9f7c5735d5b46db3');
INSERT INTO "runs" VALUES(2,'waits.a','part','part','waits',1.7948407305210316181e+09,2,1,NULL,NULL,'succeeded','done',1.79484073052295112606e+09,NULL,1,0,0.0,NULL,NULL,NULL,1,'3655844c1736a4d2');
INSERT INTO "runs" VALUES(3,'waits.b','part','part','waits',1.79484073052151727671e+09,2,1,NULL,NULL,'succeeded','done',1.79484073052302670484e+09,NULL,1,0,0.0,NULL,NULL,NULL,1,'3655844c1736a4d2');
CREATE TABLE tags (
    tag TEXT    NOT NULL,
    run INTEGER NOT NULL,
    PRIMARY KEY (tag, run)
) WITHOUT ROWID;
INSERT INTO "tags" VALUES('heavy',1);
INSERT INTO "tags" VALUES('kept',1);
CREATE TABLE workers (
    id    TEXT PRIMARY KEY,
    host  TEXT    NOT NULL,
    pid   INTEGER NOT NULL,
    born  REAL    NOT NULL,
    until REAL    NOT NULL
) WITHOUT ROWID;
CREATE INDEX runs_by_flow   ON runs (flow, number);
CREATE INDEX runs_by_status ON runs (status, number);
CREATE INDEX runs_by_both   ON runs (flow, status, number);
CREATE INDEX runs_by_time   ON runs (created_at);
CREATE INDEX runs_by_parent ON runs (parent, number) WHERE parent IS NOT NULL;
CREATE INDEX runs_due       ON runs (wake_at) WHERE wake_at IS NOT NULL;
CREATE INDEX runs_owned     ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX tags_by_run ON tags (run);
CREATE INDEX blob_refs_by_hash ON blob_refs (hash);
COMMIT;
PRAGMA user_version = 1;
PRAGMA application_id = 1146375764;
