package member

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/secret"
)

// signing is the key with which this member signs tokens. A reload replaces it.
type signing struct {
	key atomic.Pointer[signature.Signer] // nil without a key
}

// readSigner reads a private key. Without a file there is no key.
func readSigner(path string) (*signature.Signer, error) {
	if path == "" {
		return nil, nil
	}
	if err := secret.CheckPath(path); err != nil {
		return nil, fmt.Errorf("signing-key-file: %w", err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("signing-key-file: %w", err)
	}
	signer, err := signature.ParseSigner(text)
	if err != nil {
		return nil, fmt.Errorf("signing-key-file (%s): %w; make a key with `leased keys new`", path, err)
	}
	return signer, nil
}

// replace puts a key into effect.
func (s *signing) replace(signer *signature.Signer, logger *slog.Logger) {
	former := ""
	if old := s.key.Swap(signer); old != nil {
		former = old.KeyID()
	}
	switch {
	case signer != nil && signer.KeyID() != former:
		logger.Info("signing tokens", "key", signer.KeyID(), "former", former)
	case signer == nil && former != "":
		logger.Warn("this member no longer has a signing key and refuses to sign tokens", "former", former)
	}
}
