package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/leased-project/leased/cmd/leased/internal/devca"
	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

// maxDays is the longest validity of a certificate: the validity of the CA.
const maxDays = 3650

// certsRequest has the flags of leased certs.
type certsRequest struct {
	dir              string
	members, clients []string
	days             int
	force, pkcs12    bool
}

func setUpCerts(c *cobra.Command) {
	r := &certsRequest{}
	flags := c.Flags()
	flags.StringVar(&r.dir, "dir", "", "folder of the CA and the certificates (required)")
	flags.StringArrayVar(&r.members, "member", nil,
		"member to make a certificate for, ID or ID=HOST,HOST; may be repeated")
	flags.StringArrayVar(&r.clients, "client", nil, "client to make a certificate for; may be repeated")
	flags.IntVar(&r.days, "days", 365, "validity of the certificates in days")
	flags.BoolVar(&r.force, "force", false, "replace existing keys, and certificates of another CA")
	flags.BoolVar(&r.pkcs12, "pkcs12", false,
		"also make a PKCS#12 file for each client, for browsers, and print its password")
	_ = c.MarkFlagDirname("dir")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := r.check(); err != nil {
			return usageError(err)
		}
		return r.run(c.OutOrStdout(), time.Now())
	}
}

func (r *certsRequest) check() error {
	switch {
	case r.dir == "":
		return errors.New("--dir is required: the folder of the CA and the certificates, such as tls")
	case len(r.members)+len(r.clients) == 0:
		return errors.New("there is nothing to make; name members with --member ID and clients with --client NAME")
	case r.pkcs12 && len(r.clients) == 0:
		return errors.New("--pkcs12 makes files for clients; name them with --client NAME")
	case r.days < 1 || r.days > maxDays:
		return fmt.Errorf("--days (%d) must be a number from 1 to %d", r.days, maxDays)
	}
	return nil
}

// run makes the certificates and prints the files and the settings that name them.
func (r *certsRequest) run(w io.Writer, now time.Time) error {
	ca, err := devca.Open(r.dir, now)
	if err != nil {
		return certsError(err)
	}
	did := "use"
	if ca.Created() {
		did = "created"
	}
	fmt.Fprintf(w, "%s the CA %s; do not copy %s to other machines\n", did, ca.CertFile(), ca.KeyFile())
	options := devca.Options{Lifetime: time.Duration(r.days) * 24 * time.Hour, Force: r.force}
	for _, text := range r.members {
		id, hosts, _ := strings.Cut(text, "=")
		issued, err := ca.Member(id, settings.Split(hosts), options)
		if err != nil {
			return certsError(err)
		}
		fmt.Fprintf(w, "\nmember %s: %s; valid for %s\n", id, outcome(issued), strings.Join(issued.Hosts, ", "))
		fmt.Fprintf(w, "  tls-ca: %s\n  tls-cert: %s\n  tls-key: %s\n", issued.CAFile, issued.CertFile, issued.KeyFile)
	}
	for _, name := range r.clients {
		issued, err := ca.Client(name, options)
		if err != nil {
			return certsError(err)
		}
		fmt.Fprintf(w, "\nclient %s: %s\n", name, outcome(issued))
		fmt.Fprintf(w, "  export LEASED_CLIENT_TLS_CA=%s LEASED_CLIENT_TLS_CERT=%s LEASED_CLIENT_TLS_KEY=%s\n", issued.CAFile,
			issued.CertFile, issued.KeyFile)
		if !r.pkcs12 {
			continue
		}
		path, password, err := ca.PKCS12(issued)
		if err != nil {
			return certsError(err)
		}
		if _, err := fmt.Fprintf(w, "  import %s into the browser; its password is %s\n", path, password); err != nil {
			return err
		}
	}
	return nil
}

// outcome says what was made.
func outcome(i devca.Issued) string {
	did := "new key and certificate"
	if i.Renewed {
		did = "new certificate for the existing key"
	}
	return did + ", until " + i.Expires.Format(time.DateOnly)
}

// certsError returns err as a usage error if the user can correct it: a wrong name, an
// unusable CA or a file that only --force replaces.
func certsError(err error) error {
	if errors.Is(err, devca.ErrName) || errors.Is(err, devca.ErrCA) || errors.Is(err, devca.ErrExists) {
		return usageError(err)
	}
	return err
}
