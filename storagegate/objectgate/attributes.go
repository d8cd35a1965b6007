package objectgate

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Attributes are the attributes of an object. A gated write keeps them and can
// change them: see [Tx.Attributes]. An empty string means that the object does not
// have the attribute.
type Attributes struct {
	ContentType        string
	ContentEncoding    string
	ContentLanguage    string
	ContentDisposition string
	CacheControl       string
	// Expires is the value of the header, which need not be a date.
	Expires         string
	WebsiteRedirect string
	// StorageClass is a name such as STANDARD_IA.
	StorageClass string
	// Metadata is the user-defined metadata. Names that start with "leased-" are
	// reserved for the gate and are not stored.
	Metadata map[string]string
}

// encryption is the server-side encryption of the object. A write keeps it.
type encryption struct {
	mode      types.ServerSideEncryption
	key       *string
	bucketKey *bool
}

// reserved reports whether a metadata name belongs to the gate.
func reserved(name string) bool { return strings.HasPrefix(strings.ToLower(name), "leased-") }

// attributesOf returns the attributes in a response to HEAD.
func attributesOf(head *s3.HeadObjectOutput) Attributes {
	a := Attributes{
		ContentType:        aws.ToString(head.ContentType),
		ContentEncoding:    aws.ToString(head.ContentEncoding),
		ContentLanguage:    aws.ToString(head.ContentLanguage),
		ContentDisposition: aws.ToString(head.ContentDisposition),
		CacheControl:       aws.ToString(head.CacheControl),
		Expires:            aws.ToString(head.ExpiresString),
		WebsiteRedirect:    aws.ToString(head.WebsiteRedirectLocation),
		StorageClass:       string(head.StorageClass),
		Metadata:           map[string]string{},
	}
	for name, value := range head.Metadata {
		if !reserved(name) {
			a.Metadata[name] = value
		}
	}
	return a
}

// apply sets the attributes of a write. It returns options for attributes that
// have no field in the request.
func (o *object) apply(in *s3.PutObjectInput) (options []func(*s3.Options)) {
	a := o.attributes
	for _, field := range []struct {
		to   **string
		text string
	}{
		{&in.ContentType, a.ContentType}, {&in.ContentEncoding, a.ContentEncoding}, {&in.ContentLanguage, a.ContentLanguage},
		{&in.ContentDisposition, a.ContentDisposition}, {&in.CacheControl, a.CacheControl},
		{&in.WebsiteRedirectLocation, a.WebsiteRedirect}, {&in.Tagging, o.tags},
	} {
		if field.text != "" {
			*field.to = &field.text
		}
	}
	in.StorageClass = types.StorageClass(a.StorageClass)
	in.ServerSideEncryption, in.SSEKMSKeyId = o.encryption.mode, o.encryption.key
	in.BucketKeyEnabled = o.encryption.bucketKey
	in.Metadata = map[string]string{}
	maps.Copy(in.Metadata, a.Metadata)
	maps.DeleteFunc(in.Metadata, func(name, _ string) bool { return reserved(name) })
	if a.Expires != "" { // the field of the request is a date, and the value may be something else
		options = append(options, s3.WithAPIOptions(smithyhttp.SetHeaderValue("Expires", a.Expires)))
	}
	return options
}

// readTags reads the tags of the object, if it has any. HEAD returns only their
// number.
func (g *Gate) readTags(ctx context.Context, key string, o *object) error {
	if o.tagCount == 0 {
		return nil
	}
	out, err := g.client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &g.bucket, Key: &key})
	if statusOf(err) == http.StatusNotFound {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("read the tags of object %s, which the write must keep: %w", key, err)
	}
	tags := url.Values{}
	for _, tag := range out.TagSet {
		tags.Add(aws.ToString(tag.Key), aws.ToString(tag.Value))
	}
	o.tags = tags.Encode()
	return nil
}
