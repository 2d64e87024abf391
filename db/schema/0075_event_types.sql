-- Event types: what a tenant's events of a type are, and what their payloads look like.
--
--   event_types              a tenant's type: a description and a JSON Schema

-- migrate:up
CREATE TABLE postlane.event_types (
    tenant      text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    -- Exactly, such as invoice.paid.
    name        text COLLATE "C" NOT NULL CHECK (name <> ''),
    description text        NOT NULL DEFAULT '',
    -- A JSON Schema as it was written; '': none.
    schema      text        NOT NULL DEFAULT '',
    -- Whether the API refuses payloads that do not meet the schema.
    validate    boolean     NOT NULL DEFAULT false CHECK (schema <> '' OR NOT validate),
    deprecated  boolean     NOT NULL DEFAULT false,
    -- Of all versions of a type, no two have the same.
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, name)
);
-- Whether a tenant has types that are validated is asked often.
CREATE INDEX event_types_validated ON postlane.event_types (tenant, name) WHERE validate;

-- migrate:down
DROP TABLE postlane.event_types;
