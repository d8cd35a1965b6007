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

	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/remote/secret"
)

func newKeys() *cobra.Command {
	c := &cobra.Command{Use: "keys", Short: "Make keys for signed tokens",
		Long: "Make keys for signed tokens. Members sign tokens with the private key (leased serve --signing-key-file).\n" +
			"Gates verify them with the public key, and then accept no other tokens.", Args: cobra.NoArgs}
	c.AddCommand(newKeysNew(), newKeysPublic())
	return c
}

func newKeysNew() *cobra.Command {
	return &cobra.Command{Use: "new FILE", Short: "Make a signing key and print its public key",
		Long: "Make a private key for signing tokens, and print the public key. The file is readable by its owner only and\n" +
			"is never replaced. Anyone who has it can sign every token.\n\n" +
			"To rotate: make a new key, add its public key to all gates, switch signing-key-file and send SIGHUP to the\n" +
			"members, and remove the old public key from the gates after signature-ttl has passed.",
		Example: "  leased keys new /etc/leased/signing.pem > signing.pub\n  leased serve --signing-key-file /etc/leased/signing.pem ...\n" +
			"  leased gate proxy --verify-keys signing.pub ...",
		Args: exactly(1, "the name of the file to make"),
		RunE: func(c *cobra.Command, args []string) error {
			_, private, err := ed25519.GenerateKey(rand.Reader)
			if err != nil {
				return err
			}
			signer, err := fencing.NewSigner(private)
			if err != nil {
				return err
			}
			if err := writeSigner(args[0], signer); err != nil {
				return err
			}
			fmt.Fprintf(c.ErrOrStderr(), "made the key %s in %s; give the public key below to the gates before the members use it\n", signer.KeyID(), args[0])
			return printPublicKey(c.OutOrStdout(), signer, false)
		}}
}

func newKeysPublic() *cobra.Command {
	var asHex bool
	c := &cobra.Command{Use: "public FILE", Short: "Print the public key of a signing key",
		Long: "Print the public key of a signing key, for the gates. A file with the keys of several members, or with an old\n" +
			"and a new key, is their concatenation.",
		Example: "  leased keys public new.pem >> gate-keys.pem\n" +
			"  psql mydb -c \"SELECT leased_trust_key('$(leased keys public --hex signing.pem)')\"",
		Args: exactly(1, "the file of a signing key"),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := readKeyFile(args[0])
			if err != nil {
				return err
			}
			signer, err := fencing.ParseSigner(text)
			if err != nil {
				return usageError(fmt.Errorf("%s: %w", args[0], err))
			}
			return printPublicKey(c.OutOrStdout(), signer, asHex)
		}}
	c.Flags().BoolVar(&asHex, "hex", false, "print 64 hexadecimal digits instead of PEM, for leased_trust_key in PostgreSQL")
	return c
}

// writeSigner creates the file of a private key.
func writeSigner(path string, signer *fencing.Signer) (err error) {
	if err := secret.CheckPath(path); err != nil {
		return usageError(err)
	}
	text, err := fencing.MarshalSigner(signer)
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
func printPublicKey(w io.Writer, signer *fencing.Signer, asHex bool) error {
	if asHex {
		_, err := fmt.Fprintln(w, hex.EncodeToString(signer.PublicKey()))
		return err
	}
	text, err := fencing.MarshalPublicKey(signer.PublicKey())
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
	keys, err := fencing.ParsePublicKeys(text)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", path, err))
	}
	return keys, nil
}
