-- One line for everything in a database that is not PostgreSQL's own.
WITH
schemas AS (
    SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
),
relations AS (
    SELECT c.oid, c.relkind, c.reloptions, format('%I.%I', nspname, relname) AS name
    FROM pg_class c JOIN schemas s ON s.oid = c.relnamespace
)
SELECT line FROM (
    SELECT 'schema ' || nspname FROM schemas
    UNION ALL
    SELECT 'extension ' || extname FROM pg_extension
    UNION ALL
    SELECT format('relation %s %s %s', relkind, name, reloptions) FROM relations
    UNION ALL
    SELECT format('column %s %s %s %s %s %s', name, attname, format_type(atttypid, atttypmod), attnotnull,
                  attcollation::regcollation, pg_get_expr(adbin, adrelid))
    FROM relations r JOIN pg_attribute a ON a.attrelid = r.oid AND attnum > 0 AND NOT attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = r.oid AND d.adnum = a.attnum
    WHERE relkind NOT IN ('i', 'I')
    UNION ALL
    SELECT format('sequence %s %s %s', name, seqtypid::regtype, seqcache) FROM relations r JOIN pg_sequence ON seqrelid = r.oid
    UNION ALL
    SELECT format('index %s %s', pg_get_indexdef(indexrelid), indisvalid) FROM relations r JOIN pg_index ON indexrelid = r.oid
    UNION ALL
    SELECT format('constraint %s %s %s', name, conname, pg_get_constraintdef(c.oid)) FROM relations r JOIN pg_constraint c ON conrelid = r.oid
    UNION ALL
    SELECT format('trigger %s', pg_get_triggerdef(t.oid)) FROM relations r JOIN pg_trigger t ON tgrelid = r.oid AND NOT tgisinternal
    UNION ALL
    SELECT format('function %s', pg_get_functiondef(p.oid)) FROM pg_proc p JOIN schemas s ON s.oid = pronamespace WHERE prokind IN ('f', 'p')
    UNION ALL
    SELECT format('type %s.%s %s', nspname, typname, typtype) FROM pg_type t JOIN schemas s ON s.oid = typnamespace
    WHERE typtype <> 'b' OR typelem = 0
) AS o (line)
ORDER BY line
