-- The registry: one row a device, found by its key. Dates are ISO text (YYYY-MM-DD), their day included.
CREATE TABLE devices (
    serial_key           TEXT PRIMARY KEY CHECK (serial_key <> ''),  -- A-Z and 0-9 of the serial, upper case
    serial               TEXT NOT NULL,                              -- as registered
    device_name          TEXT,
    customer_ref         TEXT,
    service_contract_end TEXT,
    manufacturer_end     TEXT,
    extension_until      TEXT
) WITHOUT ROWID;
