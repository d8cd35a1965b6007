package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/leased-project/leased/cmd/leased/internal/settings"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/raftstore"
)

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
	return raftstore.Recover(raftstore.Config{ID: s.ID, Dir: s.Data, Address: s.RaftListen, Advertise: s.RaftAdvertise,
		TLS: certs.raft(), LogStore: s.LogStore, HeartbeatTimeout: s.Heartbeat, StoreDeadline: s.DiskTimeout,
		Logger: logger})
}
