// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podcert_test

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/volume/podcert"
)

// describeKey returns the algorithm and the size of a public key.
func describeKey(t *testing.T, public any) string {
	t.Helper()
	switch k := public.(type) {
	case interface{ Size() int }:
		return fmt.Sprintf("RSA%d", 8*k.Size())
	default:
		der, err := x509.MarshalPKIXPublicKey(public)
		require.NoError(t, err)
		return fmt.Sprintf("%T %d", k, len(der))
	}
}

// The certificate request has no subject, and is signed with the key.
func TestGenerateKey(t *testing.T) {
	want := map[string]string{
		"RSA3072": "RSA3072", "RSA4096": "RSA4096", "ECDSAP256": "*ecdsa.PublicKey 91", "ECDSAP384": "*ecdsa.PublicKey 120",
		"ECDSAP521": "*ecdsa.PublicKey 158", "ED25519": "ed25519.PublicKey 44",
	}
	require.Len(t, podcert.KeyTypes(), len(want))
	for _, typ := range podcert.KeyTypes() {
		t.Run(typ, func(t *testing.T) {
			key, stub, err := podcert.GenerateKey(typ)
			require.NoError(t, err)
			block, rest := pem.Decode(key)
			require.NotNil(t, block)
			assert.Empty(t, rest)
			assert.Equal(t, "PRIVATE KEY", block.Type)
			private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			require.NoError(t, err)

			request, err := x509.ParseCertificateRequest(stub)
			require.NoError(t, err)
			require.NoError(t, request.CheckSignature())
			assert.Empty(t, request.Subject.String())
			assert.Empty(t, request.Extensions)
			assert.Equal(t, private.(crypto.Signer).Public(), request.PublicKey)
			assert.Equal(t, want[typ], describeKey(t, request.PublicKey))
		})
	}
	for _, typ := range []string{"", "RSA2048", "ed25519", strings.Repeat("x", 1000)} {
		_, _, err := podcert.GenerateKey(typ)
		require.ErrorContains(t, err, "unknown key type")
		assert.Less(t, len(err.Error()), 150)
	}
}

func TestNormalizeChain(t *testing.T) {
	block := func(text string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
	}
	headers := pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Headers: map[string]string{"key": "value"}, Bytes: []byte("a")})
	for name, c := range map[string]struct{ in, want, err string }{
		"one":     {block("a"), block("a"), ""},
		"text":    {"leaf\n" + block("a") + "\nroot\n" + block("b") + "end", block("a") + block("b"), ""},
		"headers": {string(headers), block("a"), ""},
		"twice":   {block("a") + block("a"), block("a") + block("a"), ""},
		"none":    {"nothing", "", "no certificate"},
		"empty":   {"", "", "no certificate"},
		"many":    {strings.Repeat(block("a"), 101), "", "more than 100 certificates"},
		"large":   {strings.Repeat("x", 1<<20+1), "", "more than 1048576"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := podcert.NormalizeChain([]byte(c.in))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, string(got))
		})
	}
}

// A normalized chain is not changed by another normalization, and has only PEM blocks.
func FuzzNormalizeChain(f *testing.F) {
	f.Add([]byte("-----BEGIN X-----\nYQ==\n-----END X-----\n"))
	f.Add([]byte("-----BEGIN X-----\na: b\n\nYQ==\n-----END X-----\ntext"))
	f.Fuzz(func(t *testing.T, chain []byte) {
		clean, err := podcert.NormalizeChain(chain)
		if err != nil {
			return
		}
		again, err := podcert.NormalizeChain(clean)
		require.NoError(t, err)
		require.Equal(t, clean, again)
		for rest := clean; len(rest) > 0; {
			require.True(t, bytes.HasPrefix(rest, []byte("-----BEGIN CERTIFICATE-----\n")))
			_, rest = pem.Decode(rest)
		}
	})
}
