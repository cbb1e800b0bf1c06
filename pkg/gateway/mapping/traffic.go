// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TrafficToken returns the access token for the ports of a sandbox whose traffic is private. It derives from
// the token of the runtime, and does not reveal it.
func TrafficToken(envdToken string) string {
	mac := hmac.New(sha256.New, []byte(envdToken))
	mac.Write([]byte("traffic"))
	return hex.EncodeToString(mac.Sum(nil))
}
