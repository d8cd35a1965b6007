package fencing

import (
	"fmt"
	"os"
)

// The names under which a token is transmitted with a write.
const (
	// Header is the HTTP request header that carries the token of a write.
	Header = "Fencing-Token"
	// MetadataKey is the gRPC metadata key that carries the token of a call.
	MetadataKey = "fencing-token"
	// EnvToken is the environment variable that passes a token to a child process.
	EnvToken = "LEASED_TOKEN"
	// EnvSignedToken is the environment variable that passes a signed token, beside
	// EnvToken.
	EnvSignedToken = "LEASED_SIGNED_TOKEN"
	// EnvResource is the environment variable that names the token's resource.
	EnvResource = "LEASED_RESOURCE"
)

// FromValues returns the token among the values that a request carries under
// Header or MetadataKey. No value means None. More than one value is an error,
// because it is unclear which token the holder meant.
func FromValues(values []string) (Token, error) {
	switch len(values) {
	case 0:
		return None, nil
	case 1:
		return ParseToken(values[0])
	default:
		return None, fmt.Errorf("%w: the request carries %d tokens, send one", ErrInvalidToken, len(values))
	}
}

// Environ returns the variables to append to the environment of a child process
// that works under a grant. The child reads them with FromEnviron.
func Environ(resource Resource, token Token) []string {
	return []string{EnvResource + "=" + string(resource), EnvToken + "=" + token.String()}
}

// FromEnviron returns the resource and the token that the parent process passed
// with Environ. The error says which variable is missing or malformed.
func FromEnviron() (Resource, Token, error) {
	resource, err := fromVariable(EnvResource, ErrInvalidResource, ParseResource)
	if err != nil {
		return "", None, err
	}
	token, err := fromVariable(EnvToken, ErrNoToken, ParseToken)
	if err == nil && token == None {
		err = fmt.Errorf("read %s: %w: 0 means none; start this program under a lease", EnvToken, ErrNoToken)
	}
	if err != nil {
		return "", None, err
	}
	return resource, token, nil
}

func fromVariable[T any](name string, missing error, parse func(string) (T, error)) (value T, err error) {
	text, ok := os.LookupEnv(name)
	if !ok {
		return value, fmt.Errorf("read %s: %w: the variable is not set; start this program under a lease", name, missing)
	}
	if value, err = parse(text); err != nil {
		return value, fmt.Errorf("read %s: %w", name, err)
	}
	return value, nil
}
