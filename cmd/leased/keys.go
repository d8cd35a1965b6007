package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/fencing/signature"
	"github.com/leased-project/leased/internal/secret"
)

func setUpKeysNew(c *cobra.Command) {
	c.Args = exactly(1, "the name of the file to make")
	c.RunE = func(c *cobra.Command, args []string) error {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		signer, err := signature.NewSigner(private)
		if err != nil {
			return err
		}
		if err := writeSigner(args[0], signer); err != nil {
			return err
		}
		fmt.Fprintf(c.ErrOrStderr(), "made the key %s in %s; give the public key below to the gates before the members "+
			"use it\n", signer.KeyID(), args[0])
		return printPublicKey(c.OutOrStdout(), signer, false)
	}
}

func setUpKeysPublic(c *cobra.Command) {
	var asHex bool
	c.Args = exactly(1, "the file of a signing key")
	c.RunE = func(c *cobra.Command, args []string) error {
		text, err := readKeyFile(args[0])
		if err != nil {
			return err
		}
		signer, err := signature.ParseSigner(text)
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		return printPublicKey(c.OutOrStdout(), signer, asHex)
	}
	c.Flags().BoolVar(&asHex, "hex", false, "print 64 hexadecimal digits instead of PEM, for leased_trust_key in "+
		"PostgreSQL")
}

// writeSigner creates the file of a private key.
func writeSigner(path string, signer *signature.Signer) (err error) {
	if err := secret.CheckPath(path); err != nil {
		return usageError(err)
	}
	text, err := signature.MarshalSigner(signer)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return usageError(fmt.Errorf("%s exists; a signing key is never replaced: choose another name", path))
	}
	if err != nil {
		return fmt.Errorf("make a signing key: %w", err)
	}
	_, err = file.Write(text)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return fmt.Errorf("make a signing key: %w", errors.Join(err, os.Remove(path)))
	}
	return nil
}

// printPublicKey prints the public key as PEM, with its id in a comment, or as hex.
func printPublicKey(w io.Writer, signer *signature.Signer, asHex bool) error {
	if asHex {
		_, err := fmt.Fprintln(w, hex.EncodeToString(signer.PublicKey()))
		return err
	}
	text, err := signature.MarshalPublicKey(signer.PublicKey())
	if err == nil {
		_, err = fmt.Fprintf(w, "leased signing key %s\n%s", signer.KeyID(), text)
	}
	return err
}

func readKeyFile(path string) ([]byte, error) {
	if err := secret.CheckPath(path); err != nil {
		return nil, usageError(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, usageError(fmt.Errorf("read a key: %w", err))
	}
	return text, nil
}

// readPublicKeys reads the public keys that a gate verifies tokens with.
func readPublicKeys(path string) ([]ed25519.PublicKey, error) {
	text, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	keys, err := signature.ParsePublicKeys(text)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", path, err))
	}
	return keys, nil
}
