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

// bootstrapTimeout is how long [Bootstrap] waits for the approval of one request.
const bootstrapTimeout = time.Hour

// Bootstrap requests a client certificate for an agent that does not rotate it, stores it and writes the kubeconfig. A
// usable kubeconfig is kept. A failed request is logged and retried until ctx ends.
func Bootstrap(ctx context.Context, opts ClientOptions) error {
	b, reason, err := newBootstrap(opts)
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	if reason == nil {
		return nil
	}
	b.base.log.Info("bootstrap credentials are used", "file", opts.BootstrapKubeconfig, "why", reason)
	for failures := 1; ; failures++ {
		err := b.bootstrapOnce(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
		b.base.reportFailure(err)
		wait := certrequest.RetryDelay(failures, b.base.random())
		if _, refused := errors.AsType[*RefusedError](err); refused {
			wait = max(wait, certrequest.MinInterval)
		}
		if sleep.For(ctx, wait) != nil {
			return fmt.Errorf("bootstrap: %w: %w", ctx.Err(), err)
		}
	}
}

// bootstrap is the state of one call of [Bootstrap].
type bootstrap struct {
	base rotationBase

	opts          ClientOptions
	discardStored bool // the key of the stored certificate must not be used: a request with it was refused
}

// newBootstrap opens the certificate store. If a certificate must be requested, reason is why the kubeconfig is unusable;
// otherwise it is nil.
func newBootstrap(opts ClientOptions) (b *bootstrap, reason, err error) {
	if err := opts.checkRequired(); err != nil {
		return nil, nil, err
	}
	b = &bootstrap{opts: opts}
	b.base.setDefaults("client", opts.Logger, opts.Hooks, opts.Rand)
	if b.base.store, err = certstore.Open(certstore.Options{Dir: opts.Dir, Prefix: certstore.ClientPrefix}); err != nil {
		return nil, nil, err
	}
	if opts.BootstrapKubeconfig == "" {
		_, err := kubeconfig.Load(opts.Kubeconfig)
		return b, nil, err
	}
	reason, err = checkKubeconfig(opts.Kubeconfig, b.base.now())
	return b, reason, err
}

// bootstrapOnce requests one certificate, stores it and writes the kubeconfig. It does not retry.
func (b *bootstrap) bootstrapOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootstrapTimeout)
	defer cancel()
	k, err := kubeconfig.Load(b.opts.BootstrapKubeconfig)
	if err != nil {
		return fmt.Errorf("bootstrap %w", err)
	}
	if err := b.base.store.CheckWritable(); err != nil {
		return err
	}
	key, keyPEM, err := b.loadKey()
	if err != nil {
		return err
	}
	client, end, err := newRequestClient(k.REST, b.opts.BootstrapKubeconfig, &b.opts)
	if err != nil {
		return err
	}
	defer end()
	chain, err := b.obtainCertificate(ctx, client, key)
	if err != nil {
		return err
	}
	pair, err := b.base.store.Update(chain, keyPEM)
	if err != nil {
		return err
	}
	if err := notexist.Ignore(os.Remove(b.keyPath())); err != nil {
		b.base.log.Warn("remove key of issued certificate", "error", err)
	}
	if b.base.hooks.Rotated != nil {
		b.base.hooks.Rotated(nil, pair.Leaf)
	}
	return kubeconfig.Write(b.opts.Kubeconfig, k, b.base.store.CurrentPath())
}

// obtainCertificate creates a CertificateSigningRequest for the key, or adopts that of an earlier attempt, and returns the
// certificate as PEM.
func (b *bootstrap) obtainCertificate(ctx context.Context, client *kubeapi.Client, key crypto.Signer) ([]byte, error) {
	name, uid, err := b.createRequest(ctx, client, key)
	if err != nil {
		return nil, err
	}
	chain, err := awaitCertificate(ctx, client, name, uid)
	if _, refused := errors.AsType[*RefusedError](err); refused {
		// a new key gives the next request a new name
		return nil, errors.Join(err, b.discardKey())
	}
	return chain, err
}

// createRequest creates the CertificateSigningRequest for the key, or adopts the equivalent request of an earlier attempt.
func (b *bootstrap) createRequest(ctx context.Context, client *kubeapi.Client, key crypto.Signer) (name string, uid types.UID, err error) {
	template := certrequest.ClientTemplate(b.opts.NodeName)
	wanted, err := certrequest.NewRequest(template, certificatesv1.KubeAPIServerClientKubeletSignerName, key)
	if err != nil {
		return "", "", err
	}
	// the name is derived from the key, so that a restarted agent finds its request
	wanted.GenerateName = ""
	if wanted.Name, err = certrequest.RequestName(template, key.Public()); err != nil {
		return "", "", err
	}
	requests := kubeapi.In(client, kubeapi.CertificateSigningRequests, "")
	created, err := requests.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		if created, err = requests.Get(ctx, wanted.Name); err == nil {
			if err := certrequest.CheckReusable(created, wanted, key.Public(), b.base.now()); err != nil {
				return "", "", errors.Join(err, b.discardKey())
			}
		}
	}
	if err != nil {
		return "", "", err
	}
	return created.Name, created.UID, nil
}

// keyPath returns the path of the private key file. The file exists until a certificate is issued for the key.
func (b *bootstrap) keyPath() string {
	return filepath.Join(filepath.Dir(b.base.store.CurrentPath()), certstore.ClientPrefix+".key.tmp")
}

// discardKey deletes the private key file, so that the next attempt creates a new key.
func (b *bootstrap) discardKey() error {
	b.discardStored = true
	if err := notexist.Ignore(os.Remove(b.keyPath())); err != nil {
		return err
	}
	return nil
}

// loadKey returns the key of the stored certificate, the key of the last attempt, or a new key.
func (b *bootstrap) loadKey() (key crypto.Signer, keyPEM []byte, err error) {
	if pair, err := b.base.store.Current(); err == nil && !b.discardStored {
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
	key, text, err = certstore.NewKey()
	if err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(filepath.Dir(b.base.store.CurrentPath()), 0o755); err != nil {
		return nil, nil, err
	}
	return key, text, atomicfile.WriteFile(b.keyPath(), text, 0o600)
}
