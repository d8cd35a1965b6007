// Package kubegate prints the gate for objects of Kubernetes: a ValidatingAdmissionPolicy,
// which the API server evaluates inside its read-modify-write of an object. The mark of
// a lock is an annotation of the object, and a write carries its token in the same
// annotation.
//
// Limits: the policy sees objects before and after a change, not requests. A patch
// without a token leaves the annotation as it is, so the policy cannot tell it from one
// with the newest token; the same holds for the status of custom resources and for
// scale. A new object has no mark, and a delete has no annotation. Package
// integrations/kubelock sends every write of a controller in a form that is checked.
//
// Read Annotation, then Policy and policy.yaml.
package kubegate
