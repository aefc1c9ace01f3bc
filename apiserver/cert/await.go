// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cert

import (
	"context"
	"fmt"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/sleep"
)

// awaitCertificate waits until a CertificateSigningRequest is issued, denied, failed or deleted, and returns the certificate
// chain as PEM.
func awaitCertificate(ctx context.Context, client *kubeapi.Client, name string, uid types.UID) ([]byte, error) {
	changed := make(chan struct{}, 1)
	store := kubeapi.NewStore(kubeapi.In(client, kubeapi.CertificateSigningRequests, ""), kubeapi.StoreOptions[*certificatesv1.CertificateSigningRequest]{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String(), MaxObjects: 1,
		Changed: func(...string) {
			sleep.Wake(changed)
		},
	})
	// while the API server is unavailable, Run retries until ctx ends
	watching, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = store.Run(watching) }) // Run returns nil when its context ends
	for {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for certificate signing request %s: %w", name, ctx.Err())
		}
		found, _ := store.Get(name) // nil: the request was deleted
		if chain, err := requestOutcome(found, name, uid); err != nil || chain != nil {
			return chain, err
		}
	}
}
