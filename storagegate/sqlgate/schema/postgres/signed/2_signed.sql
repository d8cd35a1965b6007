-- Signed tokens: only a token that the lock service has signed raises a mark. Writers
-- need no rights on the tables of leased; the functions run with the rights of the
-- user who has installed them. Install the marks first (leased gate ddl).
--
--     SELECT leased_trust_key('HEX');                   -- leased keys public --hex
--     REVOKE ALL ON leased_marks FROM writer;           -- if it had rights
--
--     BEGIN;                                            -- as writer
--     SELECT leased_fence_signed('account/7', 'leased1.5f0c...');
--     UPDATE accounts SET balance = balance - 10 WHERE id = 7;
--     COMMIT;
--
-- A refused signature raises LF008. The other codes are those of leased_fence.

-- As in the file of the marks, each new table belongs to its owner alone at first.
DO $$
DECLARE
    old     oid[] := ARRAY(SELECT oid FROM pg_class WHERE relname IN ('leased_keys', 'leased_signed'));
    granted record;
BEGIN
-- The public keys whose signatures are accepted.
CREATE TABLE IF NOT EXISTS leased_keys (
    id         text COLLATE "C" PRIMARY KEY,
    public_key bytea NOT NULL CHECK (length(public_key) = 32)
);

-- The last verified signed token of each resource. Verification takes tens of
-- milliseconds, so a holder's later writes only compare the text. It is a secret of the
-- holder: do not grant the right to read it.
CREATE TABLE IF NOT EXISTS leased_signed (
    resource     text COLLATE "C" PRIMARY KEY,
    signed_token text NOT NULL,
    key_id       text COLLATE "C" NOT NULL,
    expires      bigint NOT NULL, -- seconds since 1970
    token        bigint NOT NULL
);

    FOR granted IN SELECT c.oid::regclass AS name, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
        FROM pg_class c, aclexplode(c.relacl) a
        WHERE c.oid IN ('leased_keys'::regclass, 'leased_signed'::regclass) AND c.oid <> ALL (old) AND a.grantee <> c.relowner LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s', granted.name, granted.grantee);
    END LOOP;
END
$$;

-- leased_trust_key accepts the signatures of a public key, given as 64 hexadecimal
-- digits, and returns the id of the key.
CREATE OR REPLACE FUNCTION leased_trust_key(public_key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    bytes bytea := decode($1, 'hex');
    id    text := encode(substr(sha256(bytes), 1, 8), 'hex');
BEGIN
    IF leased_ed25519_x(bytes) IS NULL THEN
        RAISE EXCEPTION '% is not a public key of Ed25519', quote_literal($1)
            USING ERRCODE = 'LF008', HINT = 'Use the output of leased keys public --hex.';
    END IF;
    INSERT INTO leased_keys VALUES (id, bytes) ON CONFLICT DO NOTHING;
    RETURN id;
END
$$;

-- leased_distrust_key refuses the signatures of a key from now on, at the end of a
-- rotation.
CREATE OR REPLACE FUNCTION leased_distrust_key(key_id text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM leased_keys k WHERE k.id = key_id;
    RETURN FOUND;
END
$$;

-- leased_verify verifies the signature of a signed token, but not its expiry. Its types
-- have a schema for the reason given at leased_try.
CREATE OR REPLACE FUNCTION leased_verify(resource text, signed_token text) RETURNS leased_signed LANGUAGE plpgsql AS $$
DECLARE
    part  pg_catalog.text[] := regexp_match(signed_token, '^leased1\.([0-9a-f]{16})\.(0|[1-9][0-9]{0,15})\.([1-9][0-9]{0,15})\.([A-Za-z0-9_-]{86})$');
    bytes pg_catalog.bytea;
    key   pg_catalog.bytea;
BEGIN
    IF part IS NULL THEN
        RAISE EXCEPTION 'not a signed fencing token for %', quote_nullable(resource)
            USING ERRCODE = 'LF008', HINT = 'Send the signed token of the lease: leased1.KEYID.EXPIRY.TOKEN.SIGNATURE.';
    END IF;
    SELECT k.public_key INTO key FROM leased_keys k WHERE k.id = part[1];
    IF NOT FOUND THEN
        RAISE EXCEPTION 'unknown signing key % of the token for %', part[1], quote_nullable(resource)
            USING ERRCODE = 'LF008', HINT = 'If the lock service signs with it, add it with leased_trust_key.';
    END IF;
    bytes := decode(translate(part[4], '-_', '+/') || '==', 'base64');
    -- The last character has four unused bits, which must be 0.
    IF translate(encode(bytes, 'base64'), E'+/=\n', '-_') <> part[4]
        OR leased_ed25519_verify(key, convert_to(left(signed_token, -86) || resource, 'UTF8'), bytes) IS NOT TRUE THEN
        RAISE EXCEPTION 'bad signature of the token for %', quote_nullable(resource)
            USING ERRCODE = 'LF008', HINT = 'It was changed, or it was signed for another resource.';
    END IF;
    RETURN ROW(resource, signed_token, part[1], part[2]::bigint, part[3]::bigint);
END
$$;

-- leased_fence_signed is leased_fence with a signed token. The bound on the jump is
-- leased_max_jump().
CREATE OR REPLACE FUNCTION leased_fence_signed(resource text, signed_token text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    verified leased_signed;
    known    boolean;
BEGIN
    SELECT s.* INTO verified FROM leased_signed s JOIN leased_keys k ON k.id = s.key_id WHERE s.resource = $1 AND s.signed_token = $2;
    known := FOUND;
    IF NOT known THEN
        verified := leased_verify(resource, signed_token);
    END IF;
    IF extract(epoch FROM clock_timestamp()) >= verified.expires THEN
        RAISE EXCEPTION 'the signature of the token for % has expired', quote_literal(resource)
            USING ERRCODE = 'LF008', HINT = 'Ask the lock service to sign the token again, and check the clock of the database.';
    END IF;
    PERFORM leased_fence(resource, verified.token);
    IF NOT known THEN
        INSERT INTO leased_signed SELECT verified.* ON CONFLICT ON CONSTRAINT leased_signed_pkey DO UPDATE
            SET signed_token = excluded.signed_token, key_id = excluded.key_id, expires = excluded.expires, token = excluded.token;
    END IF;
    PERFORM set_config('leased.signed', concat(current_setting('leased.signed', true), signed_token, ' ', resource, E'\n'), true);
    RETURN verified.token;
END
$$;

-- leased_check_signed raises LF002 unless leased_fence_signed has admitted a token for the
-- resource in this transaction. The setting leased.signed cannot be forged: it is compared
-- with the verified text.
CREATE OR REPLACE FUNCTION leased_check_signed(resource text, guarded text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
    claims text[];
BEGIN
    SELECT array_agg(split_part(line, ' ', 1)) INTO claims
    FROM unnest(string_to_array(current_setting('leased.signed', true), E'\n')) AS line
    WHERE substr(line, strpos(line, ' ') + 1) = $1;
    PERFORM FROM leased_marks m JOIN leased_signed s ON s.resource = m.resource AND s.token = m.mark JOIN leased_keys k ON k.id = s.key_id
    WHERE m.resource = $1 AND extract(epoch FROM clock_timestamp()) < s.expires
        AND s.signed_token = ANY (claims) FOR NO KEY UPDATE OF m;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'no signed fencing token: table % is guarded, and % is not fenced in this transaction', guarded, quote_literal($1)
            USING ERRCODE = 'LF002', DETAIL = coalesce((SELECT m.mark FROM leased_marks m WHERE m.resource = $1), 0)::text,
                HINT = 'Acquire its lease and call leased_fence_signed with the signed token in this transaction.';
    END IF;
END
$$;

-- leased_guard_signed is leased_guard for transactions that were admitted by
-- leased_fence_signed (leased gate ddl --signed --guard-table). It runs with the rights of
-- the writer: to_jsonb calls the casts of the types of the table, and everyone can attach
-- this function to a table with types of their own.
CREATE OR REPLACE FUNCTION leased_guard_signed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    row_now jsonb;
    name    text;
    done    text;
BEGIN
    IF TG_OP = 'TRUNCATE' THEN
        RAISE EXCEPTION 'table % is fenced and cannot be truncated', TG_TABLE_NAME
            USING ERRCODE = 'LF002', DETAIL = '0', HINT = 'Delete the rows under their leases.';
    END IF;
    FOREACH row_now IN ARRAY CASE TG_OP
            WHEN 'INSERT' THEN ARRAY[to_jsonb(NEW)]
            WHEN 'DELETE' THEN ARRAY[to_jsonb(OLD)]
            ELSE ARRAY[to_jsonb(OLD), to_jsonb(NEW)] END LOOP
        name := TG_ARGV[0] || (row_now ->> TG_ARGV[1]);
        IF name IS NULL OR right(name, 1) = ' ' THEN
            RAISE EXCEPTION 'the resource of a row of table % cannot be determined from its column %', TG_TABLE_NAME, quote_nullable(TG_ARGV[1])
                USING ERRCODE = 'LF007', HINT = 'The column must exist, under this name, must not be NULL and must not end with a space: use text instead of char(n).';
        END IF;
        CONTINUE WHEN name = done;
        done := name;
        PERFORM leased_check_signed(name, TG_TABLE_NAME);
    END LOOP;
    RETURN NULL;
END
$$;

-- Functions with the rights of their owner must not find tables of the caller, such as
-- a temporary table leased_keys. Only the owner may change the keys.
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION leased_fence_signed(text, text) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION leased_check_signed(text, text) SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION leased_guard_signed() SET search_path = %I, pg_temp', current_schema());
END
$$;
REVOKE EXECUTE ON FUNCTION leased_trust_key(text), leased_distrust_key(text) FROM PUBLIC;
