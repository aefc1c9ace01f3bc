// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	clientgo "k8s.io/client-go/util/certificate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/certificate/bootstrap"

	"github.com/seed81659283/nodeagent/conformance"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
)

// issuedPair is a certificate with its key, both in PEM.
type issuedPair struct{ cert, key []byte }

// certPairs are the certificates 0 to 3. Certificate 3 has expired.
var certPairs = sync.OnceValue(func() (all []issuedPair) {
	for i, key := range []crypto.Signer{certKeys()[0], certKeys()[1], certKeys()[2], certKeys()[0]} {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i)), Subject: pkix.Name{CommonName: "system:node:n1"},
			NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
		if i == 3 {
			template.NotAfter = time.Now().Add(-time.Hour)
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
		if err != nil {
			panic(err)
		}
		private, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
		if err != nil {
			panic(err)
		}
		all = append(all, issuedPair{
			pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		})
	}
	return all
})

// Operations on a store or its directory.
const (
	opUpdate    = "update" // with a matching key
	opWrong     = "update with another key"
	opReopen    = "open again"
	opGone      = "remove current"
	opKilled    = "kill before the rename of updated to current"
	opLeftover  = "kill before the removal of current"
	opDangling  = "dangling current"
	opPlain     = "current is a regular file"
	opBroken    = "current has no key"
	opUpdated   = "updated is a regular file"
	opPairFiles = "files .crt and .key exist"
	opGiven     = "configured files exist"
)

// storeOp is an operation with a certificate.
type storeOp struct {
	Do   string
	With int
}

// Both stores have the same content after each update, restart, and file operation of a killed or foreign process.
func TestCertStores(t *testing.T) { certStores.Run(t, flags.AtMost(2_000)) }

var certStores = conformance.Comparison[[]storeOp, []string]{
	Make: func(c *conformance.Choices) (ops []storeOp) {
		updates := 0
		for range 1 + c.Int(8) {
			op := storeOp{conformance.Pick(c, opUpdate, opUpdate, opReopen, opGone, opKilled, opLeftover, opDangling, opPlain, opBroken, opUpdated,
				opPairFiles, opGiven, opWrong), c.Int(4)}
			if op.Do == opUpdate || op.Do == opWrong {
				if updates++; updates > 5 { // our store refuses more than five updates in a second
					continue
				}
			}
			ops = append(ops, op)
		}
		return ops
	},
	Kubelet: func(in []storeOp) []string {
		return runStoreOps(in, func(dir string) (certStore, error) {
			s, err := clientgo.NewFileStoreWithLogger(klog.Logger{}, "kubelet-client", dir, dir, filepath.Join(dir, "given.crt"), filepath.Join(dir, "given.key"))
			return s, err
		})
	},
	Ours: func(in []storeOp) []string {
		return runStoreOps(in, func(dir string) (certStore, error) {
			s, err := certstore.Open(certstore.Options{
				Dir: dir, Prefix: "kubelet-client", CertFile: filepath.Join(dir, "given.crt"), KeyFile: filepath.Join(dir, "given.key"),
			})
			return s, err
		})
	},
	Exceptions: []conformance.Exception[[]storeOp, []string]{{
		Name:   "an update that is refused in the second of another",
		Reason: "the kubelet overwrites the current file before it checks the key",
		When: func(in []storeOp) bool {
			updated := false
			for _, op := range in {
				if op.Do == opWrong && updated {
					return true
				}
				updated = updated || op.Do == opUpdate || op.Do == opWrong
			}
			return false
		},
	}, {
		Name:   "an update that cannot be, in the second of another",
		Reason: "the kubelet writes to the target of updated, before it detects a regular file in place of a link",
		When: func(in []storeOp) bool {
			updated, plain := false, false
			for _, op := range in {
				if op.Do == opUpdate && updated && plain {
					return true
				}
				updated = updated || op.Do == opUpdate
				plain = plain || op.Do == opPlain || op.Do == opUpdated
			}
			return false
		},
	}},
}

// certStore is implemented by both stores.
type certStore interface {
	Current() (*tls.Certificate, error)
	Update(cert, key []byte) (*tls.Certificate, error)
	CurrentPath() string
}

// runStoreOps executes ops in a new directory, and describes the directory after each.
func runStoreOps(ops []storeOp, open func(dir string) (certStore, error)) (told []string) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return []string{err.Error()}
	}
	defer os.RemoveAll(dir)
	store, err := open(dir)
	for _, op := range append([]storeOp{{Do: opReopen}}, ops...) {
		switch op.Do {
		case opReopen:
			store, err = open(dir)
		case opUpdate, opWrong:
			if err == nil {
				pair := certPairs()[op.With]
				if op.Do == opWrong {
					pair.key = certPairs()[(op.With+1)%3].key
				}
				_, err := store.Update(pair.cert, pair.key)
				told = append(told, fmt.Sprint(op.Do, ": ", err == nil))
			}
		default:
			changeStoreDir(dir, op)
		}
		told = append(told, describeStore(op.Do, dir, store, err))
	}
	return told
}

// changeStoreDir simulates a killed or foreign process in the directory. It ignores errors.
func changeStoreDir(dir string, op storeOp) {
	current, updated := filepath.Join(dir, "kubelet-client-current.pem"), filepath.Join(dir, "kubelet-client-updated.pem")
	pair := certPairs()[op.With]
	target := filepath.Join(dir, fmt.Sprintf("other-%d.pem", op.With))
	write := func(path string, data []byte) { _ = os.WriteFile(path, data, 0o600) }
	switch op.Do {
	case opGone:
		_ = os.Remove(current)
	case opKilled:
		write(target, append(pair.cert, pair.key...))
		_, _, _ = os.Remove(current), os.Remove(updated), os.Symlink(target, updated)
	case opLeftover:
		write(target, append(pair.cert, pair.key...))
		_, _ = os.Remove(updated), os.Symlink(target, updated)
	case opDangling:
		_, _ = os.Remove(current), os.Symlink(filepath.Join(dir, "nowhere"), current)
	case opPlain:
		_ = os.Remove(current)
		write(current, append(pair.cert, pair.key...))
	case opBroken:
		write(target, pair.cert)
		_, _ = os.Remove(current), os.Symlink(target, current)
	case opUpdated:
		_ = os.Remove(updated)
		write(updated, []byte("x"))
	case opPairFiles:
		write(filepath.Join(dir, "kubelet-client.crt"), pair.cert)
		write(filepath.Join(dir, "kubelet-client.key"), pair.key)
	case opGiven:
		write(filepath.Join(dir, "given.crt"), pair.cert)
		write(filepath.Join(dir, "given.key"), pair.key)
	}
}

// datedName matches the name of a file that an update has written.
var datedName = regexp.MustCompile(`^kubelet-client-\d{4}(-\d\d){5}(-\d)?\.pem$`)

// describeStore describes the certificate that the store reads, and the links and their targets.
func describeStore(did, dir string, store certStore, err error) string {
	told := []string{did}
	if err != nil {
		return did + ": open failed"
	}
	pair, err := store.Current()
	switch _, none := errors.AsType[*clientgo.NoCertKeyError](err); {
	case err == nil:
		told = append(told, "certificate "+pair.Leaf.SerialNumber.String())
	case none || errors.Is(err, certstore.ErrNoCertificate):
		told = append(told, "none")
	default:
		told = append(told, "error")
	}
	for _, name := range []string{"current", "updated"} {
		path := filepath.Join(dir, "kubelet-client-"+name+".pem")
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			told = append(told, name+" is missing")
		case err != nil:
			told = append(told, err.Error())
		case info.Mode().IsRegular():
			told = append(told, name+" is a file")
		default:
			target, _ := os.Readlink(path)
			content, _ := os.ReadFile(path)
			mode := fs.FileMode(0)
			if info, err := os.Stat(path); err == nil {
				mode = info.Mode()
			}
			base := strings.TrimPrefix(target, dir+"/")
			if datedName.MatchString(base) {
				base = "DATED"
			}
			told = append(told, fmt.Sprintf("%s leads to %s, %s, %x", name, base, mode, content))
		}
	}
	return strings.Join(told, "; ")
}

// Both sides agree on the kubeconfigs that they use instead of bootstrap credentials.
func TestCertKubeconfigs(t *testing.T) { certKubeconfigs.Run(t, flags.AtMost(5_000)) }

var certKubeconfigs = conformance.Comparison[map[string]string, bool]{
	Make: makeKubeconfig,
	Kubelet: func(in map[string]string) bool {
		return withKubeconfig(in, func(path string) bool {
			valid, err := bootstrap.ConformanceValid(path)
			return valid && err == nil
		})
	},
	Ours: func(in map[string]string) bool {
		return withKubeconfig(in, func(path string) bool { return kubeconfig.CheckUsable(path, time.Now()) == nil })
	},
	Exceptions: []conformance.Exception[map[string]string, bool]{{
		Name:   "a key in a file that does not fit the certificate",
		Reason: "the kubelet does not check the key, and then fails to start; ours uses the bootstrap credentials",
		When: func(in map[string]string) bool {
			for _, files := range [][2]string{{"one.pem", "one.pem"}, {"tls.crt", "tls.key"}} {
				if _, there := in[files[0]]; there {
					_, err := tls.X509KeyPair([]byte(in[files[0]]), []byte(in[files[1]]))
					return err != nil
				}
			}
			return false
		},
		Want: func(map[string]string, bool) bool { return false },
	}},
}

// makeKubeconfig returns a kubeconfig and the files that it names, by name.
func makeKubeconfig(c *conformance.Choices) map[string]string {
	files := map[string]string{}
	pair := certPairs()[c.Int(4)]
	certPEM, keyPEM := string(pair.cert), string(pair.key)
	switch c.Int(10) {
	case 7:
		certPEM = conformance.Pick(c, "", "garbage", keyPEM)
	case 8:
		keyPEM = conformance.Pick(c, "", "garbage", string(certPairs()[1].key))
	case 9:
		certPEM += string(certPairs()[c.Int(4)].cert)
	}
	user := map[string]string{"client-certificate": "one.pem", "client-key": "one.pem"}
	switch c.Int(4) {
	case 0:
		files["one.pem"] = certPEM + keyPEM
	case 1:
		user = map[string]string{"client-certificate": "tls.crt", "client-key": "tls.key"}
		files["tls.crt"], files["tls.key"] = certPEM, keyPEM
	case 2:
		user = map[string]string{"client-certificate-data": encode64(certPEM), "client-key-data": encode64(keyPEM)}
	case 3:
		user = conformance.Pick(c, map[string]string{}, map[string]string{"token": "t"}, map[string]string{"client-certificate": "none.pem"}, user)
	}
	cluster := conformance.Pick(c, "", "", "certificate-authority: one.pem", "certificate-authority: none", "certificate-authority-data: YQ==",
		"insecure-skip-tls-verify: true", "certificate-authority-data: "+encode64(string(pair.cert)))
	text := "apiVersion: v1\nkind: Config\ncurrent-context: " + conformance.Pick(c, "c", "c", "c", "c", "''", "d") +
		"\ncontexts: [{name: c, context: {cluster: " + conformance.Pick(c, "k", "k", "k", "other") + ", user: " + conformance.Pick(c, "u", "u", "u", "other") + "}}]\n" +
		"clusters:\n- name: k\n  cluster:\n    server: " + conformance.Pick(c, "https://h", "https://h", "http://h", "''", "h") + "\n"
	if cluster != "" {
		text += "    " + cluster + "\n"
	}
	text += "users:\n- name: u\n  user:\n    username: ''\n"
	for _, field := range []string{"client-certificate", "client-key", "client-certificate-data", "client-key-data", "token"} {
		if v, ok := user[field]; ok {
			text += "    " + field + ": " + v + "\n"
		}
	}
	files["config"] = conformance.Pick(c, text, text, text, text, text, text, text, "", "{", "[]", "kind: Pod", text+"more: 1\n")
	return files
}

func encode64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// withKubeconfig writes files to a new directory, and returns the result of f for the kubeconfig.
func withKubeconfig(in map[string]string, f func(path string) bool) bool {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	for name, text := range in {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			panic(err)
		}
	}
	return f(filepath.Join(dir, "config"))
}
