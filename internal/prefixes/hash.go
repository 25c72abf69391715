package prefixes

import (
	"crypto/sha256"
	"encoding/base32"

	"github.com/ampcors/ampcors/internal/domains"
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

// DecodeHash returns the SHA-256 that a hash prefix spells in base32.
// encoding/base32 would allocate, and ignores line breaks.
func DecodeHash(prefix string) (sum [sha256.Size]byte, p *domains.Problem) {
	if len(prefix) != len(HashPrefix{}) {
		return sum, ProblemNotHash
	}
	out, acc, bits := 0, uint(0), 0
	for i := range len(prefix) {
		c := prefix[i]
		switch {
		case 'a' <= c && c <= 'z':
			acc = acc<<5 | uint(c-'a')
		case '2' <= c && c <= '7':
			acc = acc<<5 | uint(c-'2'+26)
		default:
			return sum, ProblemNotHash
		}
		if bits += 5; bits >= 8 {
			bits -= 8
			sum[out] = byte(acc >> bits)
			out++
		}
	}
	if acc&(1<<bits-1) != 0 {
		// 52 characters hold four bits more than the sum. Only "a" and "q" at the end
		// leave them zero; anything else would be a second spelling of the same sum.
		return sum, ProblemNotHash
	}
	return sum, nil
}
