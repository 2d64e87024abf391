// Package signing signs and verifies webhook requests as Standard Webhooks
// 1.0.0 has it (https://www.standardwebhooks.com).
//
// What is signed is
//
//	{webhook-id}.{webhook-timestamp}.{body}
//
// with the id of the message, the decimal Unix seconds of this attempt, and
// the body byte for byte as it is sent. A signature is "v1," and the standard
// base64 of HMAC-SHA256 under a Secret, or "v1a," and that of Ed25519 under a
// PrivateKey. During a rotation a request carries several, with one space
// between them in the one webhook-signature header, and is good if any of them
// is.
//
// A receiver needs Verify. It must be given the raw body: decoding and
// encoding JSON again changes bytes, and so the signature. The timestamp is
// signed so that a captured request cannot be played back later: Verify
// refuses one outside its tolerance, and a receiver that also remembers the
// ids of the last few minutes is safe inside it.
package signing
