package history

import (
	"context"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/internal/server/routing"
)

// Service implements History and ReportRefusal of leased.v1.LeaseService.
type Service struct {
	router *routing.Router
}

// NewService returns a Service.
func NewService(router *routing.Router) *Service { return &Service{router: router} }

// History returns the recent events of a lock, newest first.
func (s *Service) History(ctx context.Context, r *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	return s.LocalHistory(ctx, r)
}

// LocalHistory returns the events of a lock that this member knows.
func (s *Service) LocalHistory(context.Context, *pb.HistoryRequest) (*pb.HistoryResponse, error) {
	return &pb.HistoryResponse{}, nil
}
