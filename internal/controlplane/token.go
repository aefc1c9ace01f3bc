// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// tokenKeyName is the file of the key for service account tokens, in the directory of a plane.
const tokenKeyName = "sa.key"

// ServiceAccountToken returns a token signed with the key of the API server. uid is the UID of the ServiceAccount object.
// Unlike a token from the API server, it may expire in less than ten minutes, or be expired already.
func (p *Plane) ServiceAccountToken(namespace, name, uid string, expires time.Time) (string, error) {
	path := filepath.Join(p.dir, tokenKeyName)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return "", fmt.Errorf("read %s: it is not PEM", path)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	issued := expires.Add(-time.Hour)
	if now := time.Now(); issued.After(now) {
		issued = now
	}
	return signToken(key, map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + namespace + ":" + name,
		"iat": issued.Unix(), "nbf": issued.Unix(), "exp": expires.Unix(),
		"kubernetes.io": map[string]any{"namespace": namespace, "serviceaccount": map[string]string{"name": name, "uid": uid}},
	})
}

// signToken returns a JSON Web Token with these claims. It is signed with key by ES256 (RFC 7518, section 3.4).
func signToken(key *ecdsa.PrivateKey, claims map[string]any) (string, error) {
	payload, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"ES256"}`)) + "." + encode(payload)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}
