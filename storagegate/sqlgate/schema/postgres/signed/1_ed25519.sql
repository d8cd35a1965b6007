-- Ed25519 signatures (RFC 8032), verified with the arithmetic of numeric. Nothing
-- here is secret, so the running time may depend on the values.
--
-- The curve is -x^2 + y^2 = 1 + d x^2 y^2 modulo p = 2^255 - 19. A point is
-- (X : Y : Z : T) with x = X/Z, y = Y/Z, T = X*Y/Z. Values may be negative: the
-- modulus of numeric has the sign of its first operand.

-- leased_ed25519_number returns the number of little-endian bytes.
CREATE OR REPLACE FUNCTION leased_ed25519_number(bytes bytea) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    n numeric := 0;
BEGIN
    FOR i IN REVERSE length(bytes) - 1 .. 0 LOOP
        n := n * 256 + get_byte(bytes, i);
    END LOOP;
    RETURN n;
END
$$;

-- leased_ed25519_power returns base^exponent modulo p.
CREATE OR REPLACE FUNCTION leased_ed25519_power(base numeric, exponent numeric) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    p      CONSTANT numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    result numeric := 1;
    square numeric := base % p;
    rest   numeric := exponent;
BEGIN
    WHILE rest > 0 LOOP
        IF rest % 2 = 1 THEN
            result := result * square % p;
        END IF;
        square := square * square % p;
        rest := div(rest, 2);
    END LOOP;
    RETURN result;
END
$$;

-- leased_ed25519_x returns x of a public key, or NULL if the bytes are not the one
-- encoding of a point of the curve.
CREATE OR REPLACE FUNCTION leased_ed25519_x(public_key bytea) RETURNS numeric LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    p    CONSTANT numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    d    CONSTANT numeric := 37095705934669439343138083508754565189542113879843219016388785533085940283555;
    odd  integer;
    y    numeric;
    u    numeric;
    v    numeric;
    x    numeric;
BEGIN
    IF length(public_key) <> 32 THEN
        RETURN NULL;
    END IF;
    odd := get_bit(public_key, 255);
    y := leased_ed25519_number(set_bit(public_key, 255, 0));
    IF y >= p THEN
        RETURN NULL;
    END IF;
    u := (y * y - 1) % p;
    v := (d * y % p * y + 1) % p;
    -- The candidate for the square root of u/v: u v^3 (u v^7)^((p-5)/8).
    x := v * v % p * v % p;
    x := u * x % p * leased_ed25519_power(u * x % p * x % p * v, div(p - 5, 8)) % p;
    IF (v * x % p * x - u) % p <> 0 THEN
        x := x * leased_ed25519_power(2, div(p - 1, 4)) % p;
        IF (v * x % p * x - u) % p <> 0 THEN
            RETURN NULL;
        END IF;
    END IF;
    x := (x + p) % p;
    IF x = 0 AND odd = 1 THEN
        RETURN NULL;
    END IF;
    RETURN CASE WHEN x % 2 = odd THEN x ELSE p - x END;
END
$$;

-- leased_ed25519_add returns the sum of two points, which may be equal.
CREATE OR REPLACE FUNCTION leased_ed25519_add(a numeric[], b numeric[]) RETURNS numeric[] LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    p  CONSTANT numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    d2 CONSTANT numeric := 16295367250680780974490674513165176452449235426866156013048779062215315747161; -- 2d
    m  numeric := (a[2] - a[1]) * (b[2] - b[1]) % p;
    n  numeric := (a[2] + a[1]) * (b[2] + b[1]) % p;
    t  numeric := a[4] * b[4] % p * d2 % p;
    z  numeric := 2 * a[3] * b[3] % p;
    e  numeric := n - m;
    f  numeric := z - t;
    g  numeric := z + t;
    h  numeric := n + m;
BEGIN
    RETURN ARRAY[e * f % p, g * h % p, f * g % p, e * h % p];
END
$$;

-- leased_ed25519_verify reports whether a signature of 64 bytes is valid. It accepts
-- what crypto/ed25519 of Go accepts: S must be below the order of the group, and R
-- must be the one encoding of [S]B - [k]A.
CREATE OR REPLACE FUNCTION leased_ed25519_verify(public_key bytea, message bytea, signature bytea) RETURNS boolean LANGUAGE plpgsql IMMUTABLE STRICT AS $$
DECLARE
    p    CONSTANT numeric := 57896044618658097711785492504343953926634992332820282019728792003956564819949;
    l    CONSTANT numeric := 7237005577332262213973186563042994240857116359379907606001950938285454250989; -- order of B
    base_x   CONSTANT numeric := 15112221349535400772501151409588531511454012693041857206046113283949847762202;
    base_y CONSTANT numeric := 46316835694926478169428394003475163141307993866256225615783033603165251855960;
    base CONSTANT numeric[] := ARRAY[base_x, base_y, 1, base_x * base_y % p];
    x    numeric := p - leased_ed25519_x(public_key); -- of -A
    y    numeric;
    k    numeric;
    bits integer[] := '{}'; -- of k
    minus_a numeric[];
    b_minus_a    numeric[]; -- B - A
    sum     numeric[] := ARRAY[0, 1, 1, 0];
BEGIN
    IF x IS NULL OR length(signature) <> 64 OR leased_ed25519_number(substr(signature, 33)) >= l THEN
        RETURN false;
    END IF;
    y := leased_ed25519_number(set_bit(public_key, 255, 0));
    minus_a := ARRAY[x, y, 1, x * y % p];
    b_minus_a := leased_ed25519_add(base, minus_a);
    k := leased_ed25519_number(sha512(substr(signature, 1, 32) || public_key || message)) % l;
    FOR i IN 0..252 LOOP
        bits[i] := k % 2;
        k := div(k, 2);
    END LOOP;
    FOR i IN REVERSE 252..0 LOOP
        sum := leased_ed25519_add(sum, sum);
        CASE get_bit(signature, 256 + i) + 2 * bits[i]
            WHEN 1 THEN sum := leased_ed25519_add(sum, base);
            WHEN 2 THEN sum := leased_ed25519_add(sum, minus_a);
            WHEN 3 THEN sum := leased_ed25519_add(sum, b_minus_a);
            ELSE NULL;
        END CASE;
    END LOOP;
    k := leased_ed25519_power(sum[3], p - 2); -- 1/Z
    x := (sum[1] * k % p + p) % p;
    y := (sum[2] * k % p + p) % p;
    RETURN get_bit(signature, 255) = x % 2 AND leased_ed25519_number(set_bit(substr(signature, 1, 32), 255, 0)) = y;
END
$$;
