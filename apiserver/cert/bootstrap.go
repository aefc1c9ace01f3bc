// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/notexist"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// bootstrapTimeout is how long [Bootstrap] waits for one request to be approved.
const bootstrapTimeout = time.Hour

// Bootstrap gets a client certificate for an agent that does not rotate it, and writes the kubeconfig. It does nothing if that is
// usable. It returns when the certificate is there, or with the error of ctx: what fails is logged and tried again.
func Bootstrap(ctx context.Context, o ClientOptions) error {
	b, why, err := prepare(o)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if why == nil {
		return nil
	}
	b.log.Info("bootstrap credentials are used", "file", o.BootstrapKubeconfig, "why", why)
	for failures := 1; ; failures++ {
		err := b.try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
		b.failed(err)
		wait := retries(failures, b.random())
		if _, refused := errors.AsType[*RefusedError](err); refused {
			wait = max(wait, minInterval)
		}
		if sleep.For(ctx, wait) != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
	}
}

// bootstrap is one call of [Bootstrap].
type bootstrap struct {
	common

	o       ClientOptions
	another bool // the key of the store is not to be used: its request was refused
}

// prepare returns why the kubeconfig cannot be used, or nil.
func prepare(o ClientOptions) (b *bootstrap, why, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	b = &bootstrap{o: o}
	b.setUp("client", o.Logger, o.Hooks, o.Rand)
	if b.store, err = OpenStore(StoreOptions{Dir: o.Dir, Prefix: ClientPrefix}); err != nil {
		return nil, nil, err
	}
	if o.BootstrapKubeconfig == "" {
		_, err := load(o.Kubeconfig)
		return b, nil, err
	}
	why, err = unusable(o.Kubeconfig, b.now())
	return b, why, err
}

// try makes one attempt.
func (b *bootstrap) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	k, err := load(b.o.BootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("bootstrap %w", err)
	}
	if err := b.store.Writable(); err != nil {
		return err
	}
	key, keyPEM, err := b.key()
	if err != nil {
		return err
	}
	client, end, err := connect(k.rest, b.o.BootstrapKubeconfig, &b.o)
	if err != nil {
		return err
	}
	defer end()
	chain, err := b.issue(ctx, client, key)
	if err != nil {
		return err
	}
	pair, err := b.store.Update(chain, keyPEM)
	if err != nil {
		return err
	}
	if err := notexist.Ignore(os.Remove(b.keyPath())); err != nil {
		b.log.Warn("key remains", "error", err)
	}
	if b.hooks.Rotated != nil {
		b.hooks.Rotated(nil, pair.Leaf)
	}
	return writeKubeconfig(b.o.Kubeconfig, k, b.store.CurrentPath())
}

// issue makes a request, or finds the one that was made before, and waits for its certificate. A request that is not ours, or was
// refused, costs its key: the next one has another name.
func (b *bootstrap) issue(ctx context.Context, client *kubeapi.Client, key crypto.Signer) ([]byte, error) {
	name, uid, err := b.request(ctx, client, key)
	if err != nil {
		return nil, err
	}
	chain, err := await(ctx, client, name, uid)
	if _, refused := errors.AsType[*RefusedError](err); refused {
		return nil, errors.Join(err, b.forgetKey())
	}
	return chain, err
}

func (b *bootstrap) request(ctx context.Context, client *kubeapi.Client, key crypto.Signer) (string, types.UID, error) {
	template := ClientTemplate(b.o.NodeName)
	wanted, err := NewRequest(template, certificatesv1.KubeAPIServerClientKubeletSignerName, key)
	if err != nil {
		return "", "", err
	}
	wanted.GenerateName = ""
	if wanted.Name, err = RequestName(template, key.Public()); err != nil {
		return "", "", err
	}
	requests := kubeapi.In(client, kubeapi.CertificateSigningRequests, "")
	made, err := requests.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		if made, err = requests.Get(ctx, wanted.Name); err == nil {
			if err := Reusable(made, wanted, key.Public(), b.now()); err != nil {
				return "", "", errors.Join(err, b.forgetKey())
			}
		}
	}
	if err != nil {
		return "", "", err
	}
	return made.Name, made.UID, nil
}

// keyPath is where a key is until it has a certificate.
func (b *bootstrap) keyPath() string { return filepath.Join(b.store.o.Dir, ClientPrefix+".key.tmp") }

// forgetKey has the next attempt made with another key.
func (b *bootstrap) forgetKey() error {
	b.another = true
	if err := notexist.Ignore(os.Remove(b.keyPath())); err != nil {
		return err
	}
	return nil
}

// key returns the key to make a request with: that of the certificate that has expired, or the one of the last attempt, or a new
// one.
func (b *bootstrap) key() (crypto.Signer, []byte, error) {
	if pair, err := b.store.Current(); err == nil && !b.another {
		if key, text, err := encodeKey(pair); err == nil {
			return key, text, nil
		}
	}
	text, err := readFile(b.keyPath())
	if err == nil {
		if key, err := parseKey(text); err == nil {
			return key, text, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it has no private key")
		}
		return nil, nil, fmt.Errorf("read key %s: %w", b.keyPath(), err)
	}
	key, text, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(b.store.o.Dir, 0o755); err != nil {
		return nil, nil, err
	}
	return key, text, atomicfile.WriteFile(b.keyPath(), text, 0o600)
}

// encodeKey returns the key of a certificate.
func encodeKey(pair *tls.Certificate) (crypto.Signer, []byte, error) {
	switch key := pair.PrivateKey.(type) {
	case *ecdsa.PrivateKey:
		der, err := x509.MarshalECPrivateKey(key)
		return key, pem.EncodeToMemory(&pem.Block{Type: blockECKey, Bytes: der}), err
	case *rsa.PrivateKey:
		return key, pem.EncodeToMemory(&pem.Block{Type: blockRSAKey, Bytes: x509.MarshalPKCS1PrivateKey(key)}), nil
	default:
		return nil, nil, fmt.Errorf("a key is a %T, and neither ECDSA nor RSA", pair.PrivateKey)
	}
}

// parseKey returns the first private key in a text.
func parseKey(text []byte) (crypto.Signer, error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		var key any
		var err error
		switch {
		case block.Type == blockECKey:
			key, err = x509.ParseECPrivateKey(block.Bytes)
		case block.Type == blockRSAKey:
			key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
		case strings.HasSuffix(block.Type, blockAnyKey):
			key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
		}
		if signer, ok := key.(crypto.Signer); ok && err == nil {
			return signer, nil
		}
	}
	return nil, errors.New("it has no private key")
}
