// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package podtemplate

import (
	"bytes"
	"slices"
)

// IsCanonical reports whether JSON is certainly what encoding/json makes of it when it is decoded, with numbers as
// written, and encoded again. What the server has stored is, so that it need not be decoded. JSON with characters
// beyond ASCII, and with escapes that are rare, may be canonical and is not looked at further.
func IsCanonical(raw []byte) bool {
	s := canonicalScanner{raw: raw}
	return s.value(0) && s.at == len(s.raw)
}

// CutMetadata cuts the metadata out of a pod template in canonical JSON, so that other metadata can be put between
// before and after. metadata is nil if there is none. ok is false if the template is not known to be canonical.
func CutMetadata(raw []byte) (before, metadata, after []byte, ok bool) {
	const name = "metadata"
	s := canonicalScanner{raw: raw}
	var next int // where the first key behind the name begins
	ok = s.skip('{') && s.object(0, func(key []byte, begin, value, end int) {
		switch bytes.Compare(key, []byte(name)) {
		case 0:
			before, metadata, after = raw[:value], raw[value:end], raw[end:]
		case 1:
			if next == 0 {
				next = begin
			}
		}
	}) && s.at == len(raw)
	switch {
	case !ok:
		return nil, nil, nil, false
	case metadata != nil:
		return before, metadata, after, true
	case next > 0:
		return slices.Concat(raw[:next], []byte(`"`+name+`":`)), nil, slices.Concat([]byte(","), raw[next:]), true
	case len(raw) == len("{}"):
		return []byte(`{"` + name + `":`), nil, []byte("}"), true
	default:
		return slices.Concat(raw[:len(raw)-1], []byte(`,"`+name+`":`)), nil, []byte("}"), true
	}
}

// maxCanonicalDepth is far above that of a pod template.
const maxCanonicalDepth = 100

// canonicalScanner reads canonical JSON.
type canonicalScanner struct {
	raw []byte
	at  int
}

// value reads a value, and reports whether that is canonical.
func (s *canonicalScanner) value(depth int) bool {
	switch {
	case s.at == len(s.raw) || depth == maxCanonicalDepth:
		return false
	case s.skip('{'):
		return s.object(depth, nil)
	case s.skip('['):
		return s.array(depth)
	case s.raw[s.at] == '"':
		_, ok := s.text()
		return ok
	}
	for _, literal := range literals {
		if bytes.HasPrefix(s.raw[s.at:], literal) {
			s.at += len(literal)
			return true
		}
	}
	return s.number()
}

var literals = [][]byte{[]byte("true"), []byte("false"), []byte("null")}

// object reads the rest of an object, whose keys are sorted, each once. found, if set, is called with each key, and
// where the key and its value begin and the value ends.
func (s *canonicalScanner) object(depth int, found func(key []byte, begin, value, end int)) bool {
	if s.skip('}') {
		return true
	}
	var last []byte
	for {
		begin := s.at
		key, ok := s.text()
		// Escapes are not sorted as what they stand for.
		if !ok || bytes.IndexByte(key, '\\') >= 0 || bytes.Compare(key, last) <= 0 || !s.skip(':') {
			return false
		}
		value := s.at
		if !s.value(depth + 1) {
			return false
		}
		if found != nil {
			found(key, begin, value, s.at)
		}
		if last = key; !s.skip(',') {
			return s.skip('}')
		}
	}
}

// array reads the rest of an array.
func (s *canonicalScanner) array(depth int) bool {
	if s.skip(']') {
		return true
	}
	for s.value(depth + 1) {
		if !s.skip(',') {
			return s.skip(']')
		}
	}
	return false
}

// text reads a string, and returns what is between its quotes.
func (s *canonicalScanner) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	for begin := s.at; s.at < len(s.raw); s.at++ {
		switch c := s.raw[s.at]; {
		case c == '"':
			s.at++
			return s.raw[begin : s.at-1], true
		case c == '\\' && s.at+1 < len(s.raw) && isShortEscape(s.raw[s.at+1]):
			s.at++
		case c < ' ' || c > '~' || c == '\\' || c == '<' || c == '>' || c == '&':
			return nil, false
		}
	}
	return nil, false
}

func isShortEscape(c byte) bool {
	return c == '"' || c == '\\' || c == 'n' || c == 'r' || c == 't'
}

// number reads a number, which stays as it is written.
func (s *canonicalScanner) number() bool {
	s.skip('-')
	if !s.skip('0') && !s.digits() {
		return false
	}
	if s.skip('.') && !s.digits() {
		return false
	}
	if s.skip('e') || s.skip('E') {
		if !s.skip('+') {
			s.skip('-')
		}
		return s.digits()
	}
	return true
}

func (s *canonicalScanner) digits() bool {
	begin := s.at
	for s.at < len(s.raw) && '0' <= s.raw[s.at] && s.raw[s.at] <= '9' {
		s.at++
	}
	return s.at > begin
}

// skip skips a byte if it is next.
func (s *canonicalScanner) skip(c byte) bool {
	if s.at < len(s.raw) && s.raw[s.at] == c {
		s.at++
		return true
	}
	return false
}
