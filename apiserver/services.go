// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/lifecycle/podenv"
)

// service holds the fields of a Service that its environment variables need. In memory it is encoded as a packedService.
type service struct {
	Name  string        `json:"name"`
	IP    string        `json:"ip"`
	Ports []servicePort `json:"ports,omitempty"`
}

type servicePort struct {
	Name     string          `json:"name,omitempty"`
	Protocol corev1.Protocol `json:"protocol,omitempty"`
	Port     int32           `json:"port"`
}

// serviceTable watches the services of all namespaces, except headless services.
type serviceTable struct {
	table *kubeapi.Table[*corev1.Service, packedService]
	ready chan struct{}
	cache *serviceCache // on disk; nil: none
	log   *slog.Logger
}

func newServiceTable(client *kubeapi.Client, kept *serviceCache, log *slog.Logger) *serviceTable {
	s := &serviceTable{ready: make(chan struct{}), cache: kept, log: log}
	s.table = kubeapi.NewTable(kubeapi.In(client, kubeapi.Services, ""), kubeapi.TableOptions[*corev1.Service, packedService]{
		FieldSelector: "spec.clusterIP!=None",
		Transform:     packService,
		Changed:       closeOnce(s.ready),
	})
	return s
}

// closeOnce returns a hook for the changes of a table that closes the channel at the first call, after the first list.
func closeOnce(ready chan struct{}) func(...string) {
	closed := false
	return func(...string) { // called by one goroutine
		if !closed {
			closed = true
			close(ready)
		}
	}
}

// listServices returns the services of a namespace except headless services. It waits for the first list, at most
// firstListWait (2 s).
func (s *serviceTable) listServices(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	if found, ok := s.cachedServices(namespace); ok && !s.table.Synced() { // while the API server is unavailable
		return serviceObjects(namespace, found), nil
	}
	timer := time.NewTimer(firstListWait)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, fmt.Errorf("list services of namespace %s: %w", namespace, ctx.Err())
	case <-timer.C:
		if found, ok := s.cachedServices(namespace); ok {
			return serviceObjects(namespace, found), nil
		}
		return nil, fmt.Errorf("list services of namespace %s: %w: %w", namespace, podenv.ErrServicesUnknown, notSyncedError(s.table.Status()))
	}
	keys, packed := s.table.RowsIn(namespace)
	found := make([]service, len(packed))
	for i, p := range packed {
		found[i] = p.unpackService(strings.TrimPrefix(keys[i], namespace+"/"))
	}
	if err := s.cache.storeServices(namespace, found); err != nil {
		s.log.Error("cache services", "namespace", namespace, "error", err)
	}
	return serviceObjects(namespace, found), nil
}

// cachedServices returns the services of a namespace from the cache on disk. ok is false while the API server is available.
func (s *serviceTable) cachedServices(namespace string) (cached []service, ok bool) {
	found, ok := s.cache.getServices(namespace)
	if !ok || !isUnavailable(s.table.Status().Err) {
		return nil, false
	}
	s.log.Info("API server is unavailable: cached services are used", "namespace", namespace)
	return found, true
}

// serviceObjects returns the services as API objects with namespace, name, cluster IP and ports.
func serviceObjects(namespace string, found []service) []*corev1.Service {
	list := make([]*corev1.Service, len(found))
	for i, f := range found {
		o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: f.Name}}
		o.Spec.ClusterIP = f.IP
		for _, p := range f.Ports {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: p.Name, Protocol: p.Protocol, Port: p.Port})
		}
		list[i] = o
	}
	return list
}

// notSyncedError returns the error for a read before the first list, with its cause if that is recorded.
func notSyncedError(status kubeapi.Status) error {
	if status.Err != nil {
		return fmt.Errorf("they are not listed yet: %w", markUnavailable(status.Err))
	}
	return fmt.Errorf("they are not listed yet: is Objects.Run running?")
}
