package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/lease/engine"
)

// memberTimeout bounds the time until another member has reported its state.
const memberTimeout = 2 * time.Second

// ClusterStatus returns the state of every member. It asks all of them at once. A member
// that does not answer has an error instead of a state.
func (s *Service) ClusterStatus(ctx context.Context, _ *pb.ClusterStatusRequest) (*pb.ClusterStatusResponse, error) {
	own, err := s.Status(ctx, &pb.StatusRequest{})
	if err != nil {
		return nil, err
	}
	response := &pb.ClusterStatusResponse{Member: own.Id}
	var work sync.WaitGroup
	for _, m := range own.Members {
		member := &pb.MemberStatus{Id: m.Id}
		response.Members = append(response.Members, member)
		if m.Id == own.Id {
			member.Status = own
			continue
		}
		work.Go(func() { s.askMember(ctx, m.ApiAddress, member) })
	}
	work.Wait()
	if len(response.Members) == 0 { // this member belongs to no cluster yet
		response.Members = []*pb.MemberStatus{{Id: own.Id, Status: own}}
	}
	slices.SortFunc(response.Members, func(a, b *pb.MemberStatus) int { return cmp.Compare(a.Id, b.Id) })
	return response, nil
}

// askMember fills in the state of another member, or why it is unknown.
func (s *Service) askMember(ctx context.Context, address string, member *pb.MemberStatus) {
	if address == "" {
		member.Error = "the member has not published its API address yet"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	status, err := s.Router.Status(ctx, address)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		member.Error = fmt.Sprintf("%s does not answer within %v", address, memberTimeout)
	case errors.Is(err, engine.ErrUncertain) || errors.Is(err, engine.ErrUnavailable):
		member.Error = fmt.Sprintf("%s does not answer (%s)", address, transportCause(err))
	case err != nil:
		member.Error = fmt.Sprintf("ask the member at %s: %v", address, err)
	case status.Id != member.Id:
		member.Error = fmt.Sprintf("member %s answers at %s, the API address of this member", status.Id, address)
	default:
		member.Status = status
	}
}

// transportCause returns the innermost cause of a call that did not reach a member, such as
// "connection refused". A call that only reads has no uncertain outcome.
func transportCause(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, "desc = "); at >= 0 {
		text = text[at+len("desc = "):]
	}
	if at := strings.LastIndex(text, ": "); at >= 0 {
		text = text[at+len(": "):]
	}
	return strings.Trim(text, "\"\\")
}
