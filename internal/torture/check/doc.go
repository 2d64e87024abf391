// Package check judges a torture run by what its processes wrote down. It uses nothing
// of the product, not even to verify a signature: what both had wrong would look right.
//
//	producers' journals ──▶ what committed ─┐
//	receivers' journals ──▶ what arrived ───┼─▶ Report
//	harness's journal ────▶ subscriptions, ─┘
//	                        faults, and what the database says at the end
package check
