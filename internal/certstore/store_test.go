// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package certstore_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/certstore"
)

// selfSigned returns a certificate of node n1 with its key, both PEM.
func selfSigned(t testing.TB, key crypto.Signer, notBefore, notAfter time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(notAfter.UnixNano()), NotBefore: notBefore, NotAfter: notAfter,
		Subject: pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})
}

// newPair returns a certificate that is valid from now for the duration valid, and its key.
func newPair(t testing.TB, valid time.Duration) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return selfSigned(t, key, time.Now(), time.Now().Add(valid))
}

func openStore(t testing.TB, dir string) *certstore.Store {
	t.Helper()
	store, err := certstore.Open(certstore.Options{Dir: dir, Prefix: certstore.ClientPrefix})
	require.NoError(t, err)
	return store
}

// listDir returns the names in a directory, links with their targets.
func listDir(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		name := e.Name()
		if target, err := os.Readlink(filepath.Join(dir, name)); err == nil {
			name += " -> " + strings.TrimPrefix(target, dir+string(filepath.Separator))
		}
		all = append(all, name)
	}
	return all
}

// The file names are those of the kubelet, and old files are kept.
func TestStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all updates happen in the same second
		dir := filepath.Join(t.TempDir(), "pki")
		store := openStore(t, dir)
		_, err := store.Current()
		require.ErrorIs(t, err, certstore.ErrNoCertificate)
		require.NoDirExists(t, dir)

		first, firstKey := newPair(t, time.Hour)
		got, err := store.Update(first, firstKey)
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(time.Hour).UTC(), got.Leaf.NotAfter)
		at := time.Now().Format("2006-01-02-15-04-05")
		require.Equal(t, []string{"kubelet-client-" + at + ".pem", "kubelet-client-current.pem -> kubelet-client-" + at + ".pem"}, listDir(t, dir))
		data, err := os.ReadFile(store.CurrentPath())
		require.NoError(t, err)
		assert.Equal(t, string(first)+string(firstKey), string(data))
		for path, mode := range map[string]os.FileMode{dir: 0o755 | os.ModeDir, store.CurrentPath(): 0o600} {
			info, err := os.Stat(path)
			require.NoError(t, err)
			assert.Equal(t, mode, info.Mode())
		}
		target, err := os.Readlink(store.CurrentPath())
		require.NoError(t, err)
		assert.True(t, filepath.IsAbs(target))

		// An update in the same second does not overwrite the current file.
		second, secondKey := newPair(t, 2*time.Hour)
		_, err = store.Update(second, secondKey)
		require.NoError(t, err)
		require.Equal(t, []string{
			"kubelet-client-" + at + "-1.pem", "kubelet-client-" + at + ".pem", "kubelet-client-current.pem -> kubelet-client-" + at + "-1.pem",
		}, listDir(t, dir))
		got, err = openStore(t, dir).Current()
		require.NoError(t, err)
		assert.Equal(t, time.Now().Add(2*time.Hour).UTC(), got.Leaf.NotAfter)
	})
}

// A pair that does not match, or is no certificate, changes no file.
func TestUpdateRefusesInvalidPair(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir)
	good, goodKey := newPair(t, time.Hour)
	_, otherKey := newPair(t, time.Hour)
	_, err := store.Update(good, goodKey)
	require.NoError(t, err)
	before := listDir(t, dir)
	for want, in := range map[string][2][]byte{
		"it has no certificate":                     {nil, goodKey},
		"private key does not match public key":     {good, otherKey},
		"it has no private key":                     {good, good},
		"certificate 1: x509: ":                     {[]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), goodKey},
		"there are more than 100 certificates":      {[]byte(strings.Repeat(string(good), 101)), goodKey},
		"the certificate has 2000000 bytes, more t": {make([]byte, 2_000_000), goodKey},
	} {
		_, err := store.Update(in[0], in[1])
		require.ErrorContains(t, err, "store certificate in "+dir+": ")
		require.ErrorContains(t, err, want)
	}
	assert.Equal(t, before, listDir(t, dir))
	got, err := store.Current()
	require.NoError(t, err)
	assert.Equal(t, "system:node:n1", got.Leaf.Subject.CommonName)
}

// Current reads the first existing file of the configured ones.
func TestStoreOrder(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	write := func(path string, data []byte) { require.NoError(t, os.WriteFile(path, data, 0o600)) }
	o := certstore.Options{Dir: dir, Prefix: "kubelet-client", CertFile: filepath.Join(elsewhere, "tls.crt"), KeyFile: filepath.Join(elsewhere, "tls.key")}
	store, err := certstore.Open(o)
	require.NoError(t, err)
	valid := func() time.Duration {
		got, err := store.Current()
		require.NoError(t, err)
		return time.Until(got.Leaf.NotAfter).Round(time.Hour)
	}
	for i, files := range [][2]string{
		{filepath.Join(dir, "kubelet-client.crt"), filepath.Join(dir, "kubelet-client.key")}, {o.CertFile, o.KeyFile},
	} {
		c, k := newPair(t, time.Duration(i+1)*time.Hour)
		write(files[0], c)
		if i == 0 {
			_, err := store.Current()
			require.ErrorIs(t, err, certstore.ErrNoCertificate, "the key file is missing")
		}
		write(files[1], k)
		assert.Equal(t, time.Duration(i+1)*time.Hour, valid())
	}
	c, k := newPair(t, 3*time.Hour)
	_, err = store.Update(c, k)
	require.NoError(t, err)
	assert.Equal(t, 3*time.Hour, valid())
}

func TestStoreOptions(t *testing.T) {
	for _, prefix := range []string{"", "a/b"} {
		_, err := certstore.Open(certstore.Options{Dir: t.TempDir(), Prefix: prefix})
		require.ErrorContains(t, err, "Options.Prefix must be part of a file name")
	}
}
