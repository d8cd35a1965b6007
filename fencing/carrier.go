package fencing

import (
	"fmt"
	"os"
)

// How a token travels beside a write. Every program of this project uses these
// names, and no other.
const (
	// Header is the HTTP request header that carries the token of a write.
	Header = "Fencing-Token"
	// MetadataKey is the gRPC metadata key that carries the token of a call.
	MetadataKey = "fencing-token"
	// EnvToken is the environment variable that hands a token to a child.
	EnvToken = "LEASED_TOKEN"
	// EnvResource is the environment variable that names the token's resource.
	EnvResource = "LEASED_RESOURCE"
)

// FromValues reads the token from the values that a request carries under
// Header or MetadataKey. No value is None; the rule then decides. More than one
// value is an error: nobody can say which of them the holder meant.
func FromValues(values []string) (Token, error) {
	switch len(values) {
	case 0:
		return None, nil
	case 1:
		return ParseToken(values[0])
	default:
		return None, fmt.Errorf("%w: the request carries %d of them, send one", ErrInvalidToken, len(values))
	}
}

// Environ is what to append to the environment of a child that works under a
// grant. FromEnviron is its other end.
func Environ(resource Resource, token Token) []string {
	return []string{EnvResource + "=" + string(resource), EnvToken + "=" + token.String()}
}

// FromEnviron reads the resource and the token that the parent handed down.
// If either is missing or malformed it says which, and what to do.
func FromEnviron() (Resource, Token, error) {
	name, ok := os.LookupEnv(EnvResource)
	if !ok {
		return "", None, fmt.Errorf("read the lease from the environment: %w: %s is not set; start this program under a lease",
			ErrInvalidResource, EnvResource)
	}
	resource, err := ParseResource(name)
	if err != nil {
		return "", None, fmt.Errorf("read %s: %w", EnvResource, err)
	}
	text, ok := os.LookupEnv(EnvToken)
	if !ok {
		return "", None, fmt.Errorf("read the lease from the environment: %w: %s is not set; start this program under a lease",
			ErrNoToken, EnvToken)
	}
	token, err := ParseToken(text)
	if err != nil {
		return "", None, fmt.Errorf("read %s: %w", EnvToken, err)
	}
	if token == None {
		return "", None, fmt.Errorf("read %s: %w: 0 means none; start this program under a lease", EnvToken, ErrNoToken)
	}
	return resource, token, nil
}
