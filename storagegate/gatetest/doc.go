// Package gatetest is the suite that every storage gate passes.
//
// What it does not show: it does not cut the power, and it does not prove that
// a storage keeps what it has confirmed. Tests of that kind belong to each
// gate. It tests the rule, atomicity of check and write, and what is reported.
//
// The nouns, in reading order: [Subject], one open handle on a storage behind
// a gate; [Pauser] and [Crasher], what some subjects can do in addition;
// [Opener], which opens handles on one storage; [Adapt], which makes a subject
// of a gate that works in transactions; [Run], the suite.
//
// A gate's test is then:
//
//	func TestGate(t *testing.T) {
//		gatetest.Run(t, func(t *testing.T) gatetest.Opener {
//			db := emptyStorage(t)
//			return func(t testing.TB, rule fencing.Rule) gatetest.Subject {
//				return gatetest.Adapt(mygate.New(db, rule), put, get)
//			}
//		})
//	}
package gatetest
