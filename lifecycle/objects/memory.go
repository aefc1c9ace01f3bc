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

// Memory is a set of objects that its owner changes. The zero value is an empty one.
type Memory struct {
	configMaps table[*corev1.ConfigMap]
	secrets    table[*corev1.Secret]
	services   table[*corev1.Service]
	claims     table[*corev1.PersistentVolumeClaim]
	volumes    table[*corev1.PersistentVolume]
	csiDrivers table[*storagev1.CSIDriver]
	watchers   objectwatch.Watchers
}

// PutConfigMap takes a copy of a config map, in place of the one of its name. An error says why it is not valid.
func (m *Memory) PutConfigMap(o *corev1.ConfigMap) error {
	o = o.DeepCopy()
	err := m.configMaps.put(kindConfigMap, o.Namespace, o.Name, o, validateConfigMap(o))
	m.watchers.Notify(KindConfigMap, o.Namespace, o.Name)
	return err
}

// PutSecret takes a copy of a secret, in place of the one of its name. An error says why it is not valid.
func (m *Memory) PutSecret(o *corev1.Secret) error {
	o = o.DeepCopy()
	err := m.secrets.put(kindSecret, o.Namespace, o.Name, o, validateSecret(o))
	m.watchers.Notify(KindSecret, o.Namespace, o.Name)
	return err
}

// PutService takes a copy of a service, in place of the one of its name. An error says why it is not valid.
func (m *Memory) PutService(o *corev1.Service) error {
	o = o.DeepCopy()
	err := m.services.put(kindService, o.Namespace, o.Name, o, validateService(o))
	m.watchers.Notify(KindService, o.Namespace, o.Name)
	return err
}

// DeleteConfigMap forgets a config map, if it is there.
func (m *Memory) DeleteConfigMap(namespace, name string) {
	m.configMaps.drop(namespace, name)
	m.watchers.Notify(KindConfigMap, namespace, name)
}

// DeleteSecret forgets a secret, if it is there.
func (m *Memory) DeleteSecret(namespace, name string) {
	m.secrets.drop(namespace, name)
	m.watchers.Notify(KindSecret, namespace, name)
}

// DeleteService forgets a service, if it is there.
func (m *Memory) DeleteService(namespace, name string) {
	m.services.drop(namespace, name)
	m.watchers.Notify(KindService, namespace, name)
}

// ConfigMap returns a config map.
func (m *Memory) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return m.configMaps.get(kindConfigMap, namespace, name)
}

// Secret returns a secret.
func (m *Memory) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	return m.secrets.get(kindSecret, namespace, name)
}

// Services returns the services of a namespace, in any order.
func (m *Memory) Services(_ context.Context, namespace string) ([]*corev1.Service, error) {
	return m.services.list(namespace), nil
}

// table holds the objects of one kind. The key is "namespace/name", as neither has a slash in it.
type table[T any] struct {
	mu   sync.RWMutex // guards what follows
	rows map[string]T
}

// put stores an object, unless there is something wrong with it.
func (t *table[T]) put(k kind, namespace, name string, o T, wrong error) error {
	if err := k.validateNames(namespace, name); err != nil {
		wrong = err
	}
	if wrong != nil {
		return &Error{Kind: string(k), Namespace: namespace, Name: name, Err: wrong}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows == nil {
		t.rows = make(map[string]T)
	}
	t.rows[namespace+"/"+name] = o
	return nil
}

func (t *table[T]) drop(namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rows, namespace+"/"+name)
}

func (t *table[T]) get(k kind, namespace, name string) (T, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.rows[namespace+"/"+name]
	if !ok {
		return o, &Error{Kind: string(k), Namespace: namespace, Name: name, Err: fs.ErrNotExist}
	}
	return o, nil
}

func (t *table[T]) list(namespace string) []T {
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
