// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package decoding

import (
	"bytes"
	"fmt"
	"io"
	"reflect"

	json "github.com/go-json-experiment/json"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// storedEncoder encodes what is stored.
type storedEncoder struct{ runtime.Encoder }

// NewStoredEncoder returns an encoder of objects for etcd. It refuses, with a BadRequest that names
// the field, an object that could not be decoded again, or not as a part of a list. One such object
// in etcd would fail each list of its kind, in all namespaces. Of what can be encoded, only times
// beyond the years 0 to 9999 and what is nested too deep are known not to decode: requests with
// these are refused before, but requests are not all that changes objects.
func NewStoredEncoder(encoder runtime.Encoder) runtime.Encoder { return storedEncoder{encoder} }

// beyondYears are how times begin that cannot be read again. Other texts may begin so.
var beyondYears = [][]byte{[]byte(`"10000-`), []byte(`"-0`)}

// Encode implements runtime.Encoder.
func (e storedEncoder) Encode(obj runtime.Object, w io.Writer) error {
	var encoded bytes.Buffer
	if err := e.Encoder.Encode(obj, &encoded); err != nil {
		return err
	}
	data := encoded.Bytes()
	if isTooDeep(data) {
		return apierrors.NewBadRequest(fmt.Sprintf("the object is not stored: %v", errTooDeep))
	}
	for _, begin := range beyondYears {
		if !bytes.Contains(data, begin) {
			continue
		}
		if err := json.Unmarshal(data, reflect.New(reflect.TypeOf(obj).Elem()).Interface(), asEncoded); err != nil {
			return apierrors.NewBadRequest(fmt.Sprintf("the object is not stored, because it could not be read again: %v", bounded(err)))
		}
	}
	_, err := w.Write(data)
	return err
}
