// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/certrequest"
	"github.com/seed81659283/nodeagent/internal/certstore"
	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/kubeconfig"
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
	b.common.log.Info("bootstrap credentials are used", "file", o.BootstrapKubeconfig, "why", why)
	for failures := 1; ; failures++ {
		err := b.try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
		b.common.failed(err)
		wait := certrequest.RetryDelay(failures, b.common.random())
		if _, refused := errors.AsType[*RefusedError](err); refused {
			wait = max(wait, certrequest.MinInterval)
		}
		if sleep.For(ctx, wait) != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
	}
}

// bootstrap is one call of [Bootstrap].
type bootstrap struct {
	common common

	o       ClientOptions
	another bool // the key of the store is not to be used: its request was refused
}

// prepare returns why the kubeconfig cannot be used, or nil.
func prepare(o ClientOptions) (b *bootstrap, why, err error) {
	if err := o.check(); err != nil {
		return nil, nil, err
	}
	b = &bootstrap{o: o}
	b.common.setUp("client", o.Logger, o.Hooks, o.Rand)
	if b.common.store, err = certstore.Open(certstore.Options{Dir: o.Dir, Prefix: certstore.ClientPrefix}); err != nil {
		return nil, nil, err
	}
	if o.BootstrapKubeconfig == "" {
		_, err := kubeconfig.Load(o.Kubeconfig)
		return b, nil, err
	}
	why, err = unusable(o.Kubeconfig, b.common.now())
	return b, why, err
}

// try makes one attempt.
func (b *bootstrap) try(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	k, err := kubeconfig.Load(b.o.BootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("bootstrap %w", err)
	}
	if err := b.common.store.CheckWritable(); err != nil {
		return err
	}
	key, keyPEM, err := b.key()
	if err != nil {
		return err
	}
	client, end, err := connect(k.REST, b.o.BootstrapKubeconfig, &b.o)
	if err != nil {
		return err
	}
	defer end()
	chain, err := b.issue(ctx, client, key)
	if err != nil {
		return err
	}
	pair, err := b.common.store.Update(chain, keyPEM)
	if err != nil {
		return err
	}
	if err := notexist.Ignore(os.Remove(b.keyPath())); err != nil {
		b.common.log.Warn("key remains", "error", err)
	}
	if b.common.hooks.Rotated != nil {
		b.common.hooks.Rotated(nil, pair.Leaf)
	}
	return kubeconfig.Write(b.o.Kubeconfig, k, b.common.store.CurrentPath())
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
	template := certrequest.ClientTemplate(b.o.NodeName)
	wanted, err := certrequest.NewRequest(template, certificatesv1.KubeAPIServerClientKubeletSignerName, key)
	if err != nil {
		return "", "", err
	}
	wanted.GenerateName = ""
	if wanted.Name, err = certrequest.RequestName(template, key.Public()); err != nil {
		return "", "", err
	}
	requests := kubeapi.In(client, kubeapi.CertificateSigningRequests, "")
	made, err := requests.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		if made, err = requests.Get(ctx, wanted.Name); err == nil {
			if err := certrequest.CheckReusable(made, wanted, key.Public(), b.common.now()); err != nil {
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
func (b *bootstrap) keyPath() string {
	return filepath.Join(filepath.Dir(b.common.store.CurrentPath()), certstore.ClientPrefix+".key.tmp")
}

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
	if pair, err := b.common.store.Current(); err == nil && !b.another {
		if key, text, err := certstore.EncodeKey(pair); err == nil {
			return key, text, nil
		}
	}
	text, err := certstore.ReadFile(b.keyPath())
	if err == nil {
		if key, err := certstore.ParseKey(text); err == nil {
			return key, text, nil
		}
	}
	if !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = errors.New("it has no private key")
		}
		return nil, nil, fmt.Errorf("read key %s: %w", b.keyPath(), err)
	}
	key, text, err := certstore.NewKey()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(b.common.store.CurrentPath()), 0o755); err != nil {
		return nil, nil, err
	}
	return key, text, atomicfile.WriteFile(b.keyPath(), text, 0o600)
}
