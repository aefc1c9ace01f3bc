// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"io/fs"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/objectwatch"
)

// Memory stores objects in memory. The zero value is empty and ready to use.
type Memory struct {
	configMaps table[*corev1.ConfigMap]
	secrets    table[*corev1.Secret]
	services   table[*corev1.Service]
	claims     table[*corev1.PersistentVolumeClaim]
	volumes    table[*corev1.PersistentVolume]
	csiDrivers table[*storagev1.CSIDriver]
	watchers   objectwatch.Watchers
}

// PutConfigMap stores a copy of the config map. It replaces a stored config map of the same name. It returns an error if the
// config map is invalid.
func (m *Memory) PutConfigMap(configMap *corev1.ConfigMap) error {
	configMap = configMap.DeepCopy()
	err := m.configMaps.putObject(kindConfigMap, configMap.Namespace, configMap.Name, configMap, validateConfigMap(configMap))
	m.watchers.Notify(KindConfigMap, configMap.Namespace, configMap.Name)
	return err
}

// PutSecret stores a copy of the secret. It replaces a stored secret of the same name. It returns an error if the secret is
// invalid.
func (m *Memory) PutSecret(secret *corev1.Secret) error {
	secret = secret.DeepCopy()
	err := m.secrets.putObject(kindSecret, secret.Namespace, secret.Name, secret, validateSecret(secret))
	m.watchers.Notify(KindSecret, secret.Namespace, secret.Name)
	return err
}

// PutService stores a copy of the service. It replaces a stored service of the same name. It returns an error if the service
// is invalid.
func (m *Memory) PutService(service *corev1.Service) error {
	service = service.DeepCopy()
	err := m.services.putObject(kindService, service.Namespace, service.Name, service, validateService(service))
	m.watchers.Notify(KindService, service.Namespace, service.Name)
	return err
}

// DeleteConfigMap deletes a config map if it exists.
func (m *Memory) DeleteConfigMap(namespace, name string) {
	m.configMaps.deleteObject(namespace, name)
	m.watchers.Notify(KindConfigMap, namespace, name)
}

// DeleteSecret deletes a secret if it exists.
func (m *Memory) DeleteSecret(namespace, name string) {
	m.secrets.deleteObject(namespace, name)
	m.watchers.Notify(KindSecret, namespace, name)
}

// DeleteService deletes a service if it exists.
func (m *Memory) DeleteService(namespace, name string) {
	m.services.deleteObject(namespace, name)
	m.watchers.Notify(KindService, namespace, name)
}

// ConfigMap returns the stored config map, which the caller must not change. If there is none, the error wraps fs.ErrNotExist.
func (m *Memory) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return m.configMaps.getObject(kindConfigMap, namespace, name)
}

// Secret returns the stored secret, which the caller must not change. If there is none, the error wraps fs.ErrNotExist.
func (m *Memory) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return m.secrets.getObject(kindSecret, namespace, name)
}

// Services returns the stored services of a namespace in no particular order. The caller must not change them.
func (m *Memory) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	return m.services.listObjects(namespace), nil
}

// table stores the objects of one kind, by "namespace/name".
type table[T any] struct {
	mu   sync.RWMutex // guards rows
	rows map[string]T
}

// putObject stores a valid object, or replaces the one with its name. invalid is the validation error of the object.
func (t *table[T]) putObject(k kind, namespace, name string, o T, invalid error) error {
	if err := k.validateNames(namespace, name); err != nil {
		invalid = err
	}
	if invalid != nil {
		return &Error{Kind: string(k), Namespace: namespace, Name: name, Err: invalid}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = make(map[string]T)
	}
	t.rows[namespace+"/"+name] = o
	return nil
}

func (t *table[T]) deleteObject(namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, namespace+"/"+name)
}

func (t *table[T]) getObject(k kind, namespace, name string) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.rows[namespace+"/"+name]
	if !ok {
		return o, &Error{Kind: string(k), Namespace: namespace, Name: name, Err: fs.ErrNotExist}
	}
	return o, nil
}

func (t *table[T]) listObjects(namespace string) []T {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var list []T
	for key, o := range t.rows {
		if strings.HasPrefix(key, namespace+"/") {
			list = append(list, o)
		}
	}
	return list
}
