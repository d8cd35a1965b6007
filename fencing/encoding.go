package fencing

import (
	"database/sql/driver"
	"fmt"
)

// MarshalText encodes the decimal form.
func (t Token) MarshalText() ([]byte, error) {
	if t > MaxToken {
		return nil, outOfRange(t)
	}
	return []byte(t.String()), nil
}

// UnmarshalText parses the text form with ParseToken.
func (t *Token) UnmarshalText(text []byte) error {
	parsed, err := ParseToken(string(text))
	if err != nil {
		return err
	}
	*t = parsed
	return nil
}

// MarshalJSON encodes a number.
func (t Token) MarshalJSON() ([]byte, error) { return t.MarshalText() }

// UnmarshalJSON decodes a number or a string of decimal digits. As usual in
// encoding/json, null leaves t unchanged.
func (t *Token) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if n := len(text); n >= 2 && text[0] == '"' && text[n-1] == '"' {
		text = text[1 : n-1]
	}
	return t.UnmarshalText([]byte(text))
}

// Value returns the token as an int64 for database/sql. None is 0.
func (t Token) Value() (driver.Value, error) {
	if t > MaxToken {
		return nil, outOfRange(t)
	}
	return int64(t), nil
}

// Scan sets t from an integer or text column. NULL is None.
func (t *Token) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*t = None
		return nil
	case int64:
		if v < 0 || Token(v) > MaxToken {
			return fmt.Errorf("%w: the column holds %d, outside 0 to %d", ErrInvalidToken, v, MaxToken)
		}
		*t = Token(v)
		return nil
	case string:
		return t.UnmarshalText([]byte(v))
	case []byte:
		return t.UnmarshalText(v)
	default:
		return fmt.Errorf("%w: cannot scan a %T; use an integer or text column", ErrInvalidToken, src)
	}
}

func outOfRange(t Token) error {
	return fmt.Errorf("%w: %d is above the largest token %d", ErrInvalidToken, uint64(t), MaxToken)
}
