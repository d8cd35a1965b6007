package member

import (
	"testing"

	"github.com/stretchr/testify/require"

	pb "github.com/leased-project/leased/api/leased/v1"
)

// A cluster must not begin with one member counted twice.
func TestFoundersAreDifferentMembers(t *testing.T) {
	members, err := founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h1:7421"}, "h2:7420": {Id: "b", RaftAddress: "h2:7421"}})
	require.NoError(t, err)
	require.Len(t, members, 2)

	_, err = founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h1:7421"}, "h2:7420": {Id: "a", RaftAddress: "h2:7421"}})
	require.ErrorIs(t, err, ErrFormation)
	require.ErrorContains(t, err, `are both member "a"`)

	_, err = founders(map[string]*pb.StatusResponse{
		"h1:7420": {Id: "a", RaftAddress: "h:7421"}, "h2:7420": {Id: "b", RaftAddress: "h:7421"}})
	require.ErrorIs(t, err, ErrFormation)
	require.ErrorContains(t, err, "both have raft-advertise h:7421")
}
