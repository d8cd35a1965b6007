package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/leased-project/leased/api/leased/v1"
	"github.com/leased-project/leased/fencing"
	"github.com/leased-project/leased/lease/engine"
)

// Response is a decoded SessionResponse. Decode reuses its memory.
type Response struct {
	Answers []Answer
	Notices []*pb.Notice
}

// Answer is the answer to an operation. Most answers have only an id, a token, a mode and
// a slot; the message of any other is in Full, and its fields are the ones that count.
type Answer struct {
	ID    uint64
	Token uint64
	Slot  int32
	Mode  engine.Mode
	Full  *pb.Answer // nil if the fields above are all that the answer has
}

// The numbers of the fields of SessionResponse and Answer.
const (
	fieldAnswers = 1
	fieldNotices = 2

	fieldToken      = 3
	fieldAnswerMode = 4
	fieldSlot       = 5
)

// Decode decodes a SessionResponse. It keeps no reference to b.
func (r *Response) Decode(b []byte) error {
	r.Answers, r.Notices = r.Answers[:0], nil
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType || field != fieldAnswers && field != fieldNotices {
			if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		message, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := r.decode(field, message); err != nil {
			return err
		}
	}
	return nil
}

// decode adds an answer or a notice.
func (r *Response) decode(field protowire.Number, message []byte) error {
	if field == fieldNotices {
		notice := &pb.Notice{}
		r.Notices = append(r.Notices, notice)
		return proto.Unmarshal(message, notice)
	}
	var a Answer
	if !a.decode(message) {
		a = Answer{Full: &pb.Answer{}}
		if err := proto.Unmarshal(message, a.Full); err != nil {
			return err
		}
		a.ID = a.Full.Id
	}
	r.Answers = append(r.Answers, a)
	return nil
}

// decode decodes an answer. It returns false if the answer has a field that Answer does
// not have, or a malformed one.
func (a *Answer) decode(b []byte) bool {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if field == fieldAnswerMode && kind == protowire.BytesType {
			text, n := protowire.ConsumeBytes(b)
			if n < 0 || a.Mode.UnmarshalText(text) != nil {
				return false
			}
			b = b[n:]
			continue
		}
		if kind != protowire.VarintType {
			return false
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		switch field {
		case fieldID:
			a.ID = v
		case fieldToken:
			a.Token = v
		case fieldSlot:
			a.Slot = int32(v)
		default:
			return false
		}
	}
	return true
}

// Err returns the error of the answer, nil if the operation succeeded.
func (a *Answer) Err() error { return ToError(a.Full.GetError()) }

// Grant returns the token, the mode and the slot of an acquire. It returns an error if the
// mode is unknown.
func (a *Answer) Grant() (engine.Grant, error) {
	if a.Full == nil {
		return engine.Grant{Token: fencing.Token(a.Token), Mode: a.Mode, Slot: int(a.Slot)}, nil
	}
	mode, err := ParseMode(a.Full.Mode)
	return engine.Grant{Token: fencing.Token(a.Full.Token), Mode: mode, Slot: int(a.Full.Slot)}, err
}
