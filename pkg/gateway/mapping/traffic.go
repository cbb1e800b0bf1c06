// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// TrafficToken is the access token for the ports of a sandbox whose traffic is private. It
// is derived from that of the runtime, which it does not tell.
func TrafficToken(envdToken string) string {
	mac := hmac.New(sha256.New, []byte(envdToken))
	mac.Write([]byte("traffic"))
	return hex.EncodeToString(mac.Sum(nil))
}
