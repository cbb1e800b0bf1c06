// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/sandlot-io/sandlot/apis/sandbox/v1alpha1"
)

var (
	quantity  = reflect.TypeFor[resource.Quantity]()
	timestamp = reflect.TypeFor[metav1.Time]()
	microTime = reflect.TypeFor[metav1.MicroTime]()
)

// maxDepth is how deep objects and lists may be nested. Decoders take 10,000 levels, and lists and
// events of watches nest what is in them deeper than it is stored.
const maxDepth = 200

// maxDigits is how many digits a float64 takes before its point, with an exponent of two digits.
const maxDigits = 200

var (
	errTooDeep     = fmt.Errorf("objects and lists must not be nested in more than %d levels", maxDepth)
	errTimeRange   = errors.New("must lie in the years 0 to 9999 in UTC")
	errNumberRange = errors.New("the number is too large")
)

// checkValues returns an error that names the first value in data that decodes, and that causes
// harm later: a quantity that would take too long to compute with (see v1alpha1.CheckQuantity), a
// time that cannot be read again once it is written, a number too large for a float64, or a value
// that is nested too deep. It must be called before data is decoded. kinds are those that data may
// be decoded as, if it does not say it itself. What is decoded as JSON alone, and not as YAML, need
// not be checked unless isSuspicious.
func checkValues(scheme *runtime.Scheme, data []byte, kinds ...schema.GroupVersionKind) error {
	js := data
	if !json.Valid(data) { // else it is read as it is: of a key that is there twice, both values are decoded
		var err error
		if js, err = yaml.YAMLToJSON(data); err != nil {
			return nil //nolint:nilerr // the decoder has its own error for that
		}
	}
	if !isSuspicious(js) {
		return nil
	}
	if isTooDeep(js) {
		return errTooDeep
	}
	for _, kind := range withSaid(js, kinds) {
		obj, err := scheme.New(kind)
		if err != nil {
			continue // nor is it decoded
		}
		decoder := json.NewDecoder(bytes.NewReader(js))
		decoder.UseNumber()
		if bad := badValue(decoder, reflect.TypeOf(obj), nil); bad != nil {
			return errors.New(bad.Error())
		}
	}
	return checkNumbers(js)
}

// checkNumbers returns an error for the first number that is too large for a float64. The field
// managers of the generic server panic at one, also where it is in raw JSON.
func checkNumbers(js []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(js))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil //nolint:nilerr // the end, or what the decoder has its own error for
		}
		if number, ok := token.(json.Number); ok {
			if _, err := number.Float64(); err != nil {
				return fmt.Errorf("%s: %w", cut(number.String(), maxShown), errNumberRange)
			}
		}
	}
}

// withSaid returns kinds and the kind that an object says that it is. What that leaves out is
// taken from kinds, as decoders do.
func withSaid(js []byte, kinds []schema.GroupVersionKind) []schema.GroupVersionKind {
	said, err := serializer.DefaultMetaFactory.Interpret(js)
	if err != nil {
		return kinds // nor is it decoded, unless the request says the kind
	}
	return withKind(*said, kinds)
}

func withKind(said schema.GroupVersionKind, kinds []schema.GroupVersionKind) []schema.GroupVersionKind {
	all := append(slices.Clone(kinds), said)
	for _, kind := range kinds {
		all = append(all, kind.GroupVersion().WithKind(said.Kind), said.GroupVersion().WithKind(kind.Kind))
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return slices.Compact(all)
}

// isSuspicious reports whether data may have a number with an exponent of at least three digits, or
// with as many digits as a float64 does not take, or a time in the years 0 or 9999, or may be
// nested too deep. Escape sequences may hide any character. It allocates nothing.
func isSuspicious(data []byte) bool {
	if isTooDeep(data) {
		return true
	}
	digits := 0
	for i := 0; i < len(data); i++ {
		if digits++; !isDigit(data[i]) {
			digits = 0
		}
		if digits > maxDigits {
			return true
		}
		switch data[i] {
		case '\\':
			if i++; i == len(data) || !strings.ContainsRune(`"\/bfnrt`, rune(data[i])) {
				return true
			}
		case 'e', 'E':
			if isLargeExponent(data[i+1:]) && mayEndInNumber(data[:i]) {
				return true
			}
		case '-':
			if year := string(data[max(0, i-4):i]); year == "0000" || year == "9999" {
				return true
			}
		}
	}
	return false
}

// isLargeExponent reports whether a text begins with at least three digits, after any signs.
func isLargeExponent(text []byte) bool {
	digits := bytes.TrimLeft(text, "+-")
	return len(digits) > 2 && isDigit(digits[0]) && isDigit(digits[1]) && isDigit(digits[2])
}

// mayEndInNumber reports whether a text may end in a number: in digits and points, which may be none, with
// no letter before them, and with neither letter nor digit before their sign. A UID or a hash rarely has
// that before an e. The letter of an escape sequence is none: it stands for a space.
func mayEndInNumber(text []byte) bool {
	unsigned := bytes.TrimRight(text, ".0123456789")
	before := bytes.TrimRight(unsigned, "+-")
	if len(before) == 0 {
		return true
	}
	last := before[len(before)-1]
	if isLetter(last) {
		return len(before) > 1 && before[len(before)-2] == '\\'
	}
	return len(before) == len(unsigned) || !isDigit(last)
}

// isTooDeep reports whether valid JSON is nested in more than maxDepth levels.
func isTooDeep(js []byte) bool { return isDeeper(js, maxDepth) }

// isDeeper reports whether valid JSON is nested in more than some levels.
func isDeeper(js []byte, levels int) bool {
	depth, inString := 0, false
	for i := 0; i < len(js); i++ {
		switch c := js[i]; {
		case c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == '[':
			if depth++; depth > levels {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// badValue returns an error for the first quantity or time in the next value of a decoder, which is
// decoded into a type, that checkValues refuses. A nil type has neither. It goes no deeper than the
// types do.
func badValue(decoder *json.Decoder, t reflect.Type, path *field.Path) *field.Error {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isValue := t == quantity || t == timestamp || t == microTime
	if t == nil || !isValue && reflect.PointerTo(t).Implements(unmarshaler) {
		var skipped json.RawMessage
		_ = decoder.Decode(&skipped) // errors come again with the next token, and end the loops
		return nil
	}
	token, _ := decoder.Token() // nil with an error, which comes again
	switch token := token.(type) {
	case json.Delim:
		if isValue { // it does not decode, so what is in it matters to checkNumbers only
			t = reflect.TypeFor[struct{}]()
		}
		return badValueIn(decoder, token, t, path)
	case string, json.Number:
		text := fmt.Sprint(token)
		var err error
		switch t {
		case quantity:
			err = v1alpha1.CheckQuantity(text)
		case timestamp, microTime:
			err = checkTime(text)
		}
		if err != nil {
			return field.Invalid(path, cut(text, maxShown), err.Error())
		}
	}
	return nil
}

// checkTime returns errTimeRange for a time that cannot be read again when it is written in UTC. The
// text need not be a time.
func checkTime(text string) error {
	t, err := time.Parse(time.RFC3339Nano, text)
	if year := t.UTC().Year(); err == nil && (year < 0 || year > 9999) {
		return errTimeRange
	}
	return nil
}

// badValueIn is badValue for an object or a list, which has just begun.
func badValueIn(decoder *json.Decoder, begun json.Delim, t reflect.Type, path *field.Path) *field.Error {
	for i := 0; decoder.More(); i++ {
		var of reflect.Type
		var at *field.Path
		if begun == '{' {
			token, _ := decoder.Token()
			key, ok := token.(string)
			if !ok { // an error, which comes again
				return nil
			}
			of, at = memberOf(t, key, path)
		} else {
			of, at = elementOf(t), path.Index(i)
		}
		if bad := badValue(decoder, of, at); bad != nil {
			return bad
		}
	}
	_, _ = decoder.Token() // the end; an error comes again
	return nil
}

func elementOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return nil
}

// memberOf returns the type and the path of a key in an object that is decoded into a type. The
// type is nil if it has no such key.
func memberOf(t reflect.Type, key string, path *field.Path) (reflect.Type, *field.Path) {
	switch t.Kind() {
	case reflect.Map:
		return t.Elem(), path.Key(key)
	case reflect.Struct:
		return fieldOf(t, key), path.Child(key)
	}
	return nil, path.Child(key)
}

// fieldOf returns the type of the field of a struct that has a name in JSON; nil if there is
// none. Case does not matter, because some decoders of templates take any.
func fieldOf(t reflect.Type, key string) reflect.Type {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			embedded := f.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() != reflect.Struct {
				continue
			}
			if found := fieldOf(embedded, key); found != nil {
				return found
			}
		} else if strings.EqualFold(name, key) {
			return typeOfRaw(f)
		}
	}
	return nil
}

// typeOfRaw returns the type of a field, and of one that is raw JSON in our types what it is of.
func typeOfRaw(f reflect.StructField) reflect.Type {
	switch {
	case f.Type == reflect.TypeFor[*runtime.RawExtension]() || f.Type == rawExtension:
		return reflect.TypeFor[corev1.PodTemplateSpec]()
	case f.Type == reflect.TypeFor[[]runtime.RawExtension]():
		return reflect.TypeFor[[]corev1.PersistentVolumeClaim]()
	}
	return f.Type
}
