package dns

import (
	"crypto/sha256"
	"encoding/base32"
)

// base32Lower is the alphabet of RFC 4648 section 6 in lower case. The AMP document
// drops the padding, which is always four "=" for 32 bytes.
var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// A HashPrefix holds the 52 characters of a hash prefix, and shares no memory with a request.
type HashPrefix [52]byte

// EncodeHash returns the hash prefix that spells a SHA-256.
func EncodeHash(sum *[sha256.Size]byte) (prefix HashPrefix) {
	base32Lower.Encode(prefix[:], sum[:])
	return prefix
}

// Hash returns the hash prefix of a domain.
func Hash(domain string) string {
	sum := sha256.Sum256([]byte(domain))
	prefix := EncodeHash(&sum)
	return string(prefix[:])
}
