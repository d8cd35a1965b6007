-- The functions for signed tokens run with the rights of their owner, and find operators
-- and functions in this schema. A user who may create some there could add an operator
-- that these functions then call. In the schema public, every user may before
-- PostgreSQL 15.
DO $$
BEGIN
    IF has_schema_privilege('public', current_schema()::text, 'CREATE') THEN
        RAISE EXCEPTION 'cannot install signed tokens in schema %: every user may create operators there, which would run with the rights of the owner; run REVOKE CREATE ON SCHEMA % FROM PUBLIC', quote_ident(current_schema()), quote_ident(current_schema())
            USING ERRCODE = '55000', HINT = 'Do not grant CREATE on this schema to users who write data either.';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('leased_marks')); -- one installation at a time
END
$$;
