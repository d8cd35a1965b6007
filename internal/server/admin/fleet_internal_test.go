package admin

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/redlockadapter/recovery"
)

// The proposed floor is a jump above every token that is known: operators use it as it is.
func TestProposeFloor(t *testing.T) {
	t.Parallel()
	const most = uint64(fencing.MaxToken)
	for _, c := range []struct {
		name  string
		known fencing.Token
		nodes []*pb.RedisNode
		want  fencing.Token
	}{
		{"nothing known", 0, nil, recovery.Jump},
		{"the log", 1000, []*pb.RedisNode{{Max: 7, Ceiling: 9}}, 1000 + recovery.Jump},
		{"the ceiling of a node", 7, []*pb.RedisNode{{Max: 1, Ceiling: 2}, {Max: 3, Ceiling: 500}}, 500 + recovery.Jump},
		{"a token of a node", 7, []*pb.RedisNode{{Max: 600, Ceiling: 500}, {Max: 3, Ceiling: 8}}, 600 + recovery.Jump},
		{"a node without a ceiling", 7, []*pb.RedisNode{{Max: 9, Ceiling: most}}, 9 + recovery.Jump},
		{"tokens at their end", fencing.MaxToken - 1, nil, fencing.MaxToken},
		{"all tokens used", 7, []*pb.RedisNode{{Max: most, Ceiling: most}}, fencing.MaxToken},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, proposeFloor(c.known, c.nodes)) })
	}
}
