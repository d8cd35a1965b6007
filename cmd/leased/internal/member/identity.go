package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
)

const (
	identityFile = "member.json"
	// askTime bounds one question to another member.
	askTime = 2 * time.Second
)

// identity is what the folder of a member says about it.
type identity struct {
	ID string `json:"id"`
}

// claim makes the folder that of this member, or finds that it is. A new folder
// under a name that the cluster knows is refused: the member that had the name
// may have voted, and this one does not remember.
func claim(ctx context.Context, s *settings.Settings, p *peers) error {
	path := filepath.Join(s.Data, identityFile)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		var found identity
		if json.Unmarshal(text, &found) != nil || found.ID == "" {
			return fmt.Errorf("%w: %s cannot be read", ErrIdentity, path)
		}
		if found.ID != s.ID {
			return fmt.Errorf("%w: the folder %s is that of member %q, and id is %q; a member keeps its id for ever",
				ErrIdentity, s.Data, found.ID, s.ID)
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read the member's identity: %w", err)
	}
	if err := p.refuseKnown(ctx, s); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Data, 0o700); err != nil {
		return fmt.Errorf("make the member's folder: %w", err)
	}
	text, err = json.Marshal(identity{ID: s.ID})
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the member's identity: %w", err)
	}
	return nil
}

// refuseKnown fails if a member that answers knows this name already.
func (p *peers) refuseKnown(ctx context.Context, s *settings.Settings) error {
	for _, status := range p.ask(ctx) {
		for _, m := range status.Members {
			if m.Id == s.ID {
				return fmt.Errorf("%w: the cluster knows a member %q, and the folder %s is new, so what that member has voted for is forgotten; "+
					"run `leased cluster remove %s` first, or start it with its old folder", ErrIdentity, s.ID, s.Data, s.ID)
			}
		}
	}
	return nil
}
