// Package outboxtest proves that an outbox.Store keeps its contract.
//
//	func TestStore(t *testing.T) {
//		outboxtest.Run(t, func(t *testing.T) outboxtest.Bed { … })
//	}
package outboxtest
