package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
	"github.com/leased-project/leased/raftstore"
)

const (
	identityFile = "member.json"
	// statusTimeout bounds a status request to another member.
	statusTimeout = 2 * time.Second
)

// identity is the content of the identity file in a data folder. It is read before all
// other files. Format is the version of the folder.
type identity struct {
	Format uint64 `json:"format"`
	ID     string `json:"id"`
}

// check returns an error if this build cannot read the data folder.
func (i identity) check(dir string) error {
	if i.Format == 0 {
		return fmt.Errorf("%w: the data folder %s was written before the first release; empty it, and let the member "+
			"join again", ErrIdentity, dir)
	}
	if err := engine.CheckFormat("data folder", i.Format, raftstore.FolderVersion); err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	return nil
}

// claim checks that the data folder belongs to this member, or assigns a new one to
// it. It rejects a new folder for an id that the cluster knows: that member may have
// voted, and the new folder has no record of it.
func claim(ctx context.Context, s *settings.Settings, p *peers) error {
	path := filepath.Join(s.Data, identityFile)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		var found identity
		if json.Unmarshal(text, &found) != nil || found.ID == "" {
			return fmt.Errorf("%w: %s is damaged; restore that file, or run `leased cluster remove %s` and start the member "+
				"with an empty data folder", ErrIdentity, path, s.ID)
		}
		if err := found.check(s.Data); err != nil {
			return err
		}
		if found.ID != s.ID {
			return fmt.Errorf("%w: the data folder %s belongs to member %q, but id is %q; the id of a member cannot change",
				ErrIdentity, s.Data, found.ID, s.ID)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the member's identity: %w", err)
	}
	if err := p.rejectKnown(ctx, s); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return fmt.Errorf("create the data folder: %w", err)
	}
	text, err = json.Marshal(identity{Format: raftstore.FolderVersion, ID: s.ID})
	if err != nil {
		return err
	}
	// The folder keeps the votes of the member, so it must not lose its name or its owner in a power loss.
	_ = settings.SyncFolder(filepath.Dir(s.Data)) // which this user may not read
	if err := settings.Replace(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the member's identity: %w", err)
	}
	return nil
}

// rejectKnown fails if another member already knows this id.
func (p *peers) rejectKnown(ctx context.Context, s *settings.Settings) error {
	for _, status := range p.statuses(ctx) {
		for _, m := range status.Members {
			if m.Id == s.ID {
				return fmt.Errorf("%w: the cluster has a member %q, but the data folder %s is new and has no record of its votes; "+
					"run `leased cluster remove %s` first, or start the member with its old data folder", ErrIdentity, s.ID, s.Data,
					s.ID)
			}
		}
	}
	return nil
}

// Recover makes a stopped member the only member of its cluster, and returns the
// token floor. See raftstore.Recover for what is lost.
func Recover(s *settings.Settings, logger *slog.Logger) (fencing.Token, error) {
	if _, err := os.Stat(filepath.Join(s.Data, identityFile)); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("%w: %s is not the data folder of a member; give --data of the remaining member", ErrIdentity,
			s.Data)
	}
	if err := claim(context.Background(), s, nil); err != nil {
		return 0, err
	}
	certs, err := newCertificates(s)
	if err != nil {
		return 0, err
	}
	return raftstore.Recover(raftConfig(s, certs, logger))
}
