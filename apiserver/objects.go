// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/seed81659283/nodeagent/internal/kubeapi"
	"github.com/seed81659283/nodeagent/internal/objectwatch"
	"github.com/seed81659283/nodeagent/internal/runonce"
)

// ObjectsOptions tune [Objects]. The zero value is ready.
type ObjectsOptions struct {
	// CacheDir is a directory, absolute and of its own, for what pods refer to: it is there, readable for this user only, for when the
	// API server is away, but for services. Empty: nothing is on disk.
	CacheDir string
	// ServicesFile is a file, absolute, for the services that variables of pods were made of: for an agent that is started while the API
	// server is away. Empty: then it starts no container that has variables of services before it has listed them.
	ServicesFile string
	// Logger gets what goes wrong with Keep and Services. Nil means that of the Source.
	Logger *slog.Logger
}

// Objects has the objects that pods of this node refer to. Config maps and secrets that become variables are read when they are
// asked for; for those that volumes show see [Objects.Volumes]. Services, runtime classes and CSI drivers are watched, all of
// the cluster.
//
// An object that does not exist is an error that wraps [fs.ErrNotExist]; any other error is that it cannot be known. What is
// returned is not changed. All methods can be called from several goroutines.
type Objects struct {
	client *kubeapi.Client
	node   string
	log    *slog.Logger
	guard  runonce.Guard
	cache  *objectCache // nil: off

	configMaps     *objectWatcher[*corev1.ConfigMap]
	secrets        *objectWatcher[*corev1.Secret]
	readConfigMaps requestGroup[*corev1.ConfigMap]
	readSecrets    requestGroup[*corev1.Secret]
	services       *serviceTable
	classes        *kubeapi.Table[*nodev1.RuntimeClass, string]
	drivers        *kubeapi.Store[*storagev1.CSIDriver]
	driversReady   chan struct{}
	bundles        *bundleTable
	requests       *requestTable
	watchers       objectwatch.Watchers
}

// Objects returns the objects that pods of the node refer to. It reads only the names of the files in Keep, and Services; the error names the
// option that cannot be used. An agent calls it once.
func (s *Source) Objects(o ObjectsOptions) (*Objects, error) {
	if o.Logger == nil {
		o.Logger = s.opts.Logger
	}
	c, node := s.client, s.opts.NodeName
	b := &Objects{client: c, node: node, log: o.Logger, driversReady: make(chan struct{})}
	if err := b.openCaches(o); err != nil {
		return nil, err
	}
	plain, err := c.WithBudget(directReadQPS, directReadBurst)
	if err != nil {
		return nil, err
	}
	b.configMaps = newObjectWatcher(c, plain, kubeapi.ConfigMaps, isImmutableConfigMap, func(namespace, name string) { b.watchers.Notify(kindConfigMap, namespace, name) })
	b.secrets = newObjectWatcher(c, plain, kubeapi.Secrets, isImmutableSecret, func(namespace, name string) { b.watchers.Notify(kindSecret, namespace, name) })
	b.classes = kubeapi.NewTable(kubeapi.In(c, kubeapi.RuntimeClasses, ""), kubeapi.TableOptions[*nodev1.RuntimeClass, string]{
		Transform: func(o *nodev1.RuntimeClass) string { return o.Handler },
	})
	ready := closeOnce(b.driversReady)
	b.drivers = kubeapi.NewStore(kubeapi.In(c, kubeapi.CSIDrivers, ""), kubeapi.StoreOptions[*storagev1.CSIDriver]{
		Changed: func(names ...string) {
			ready()
			for _, name := range names {
				b.watchers.Notify(kindCSIDriver, "", name)
			}
		},
	})
	b.addCertificateTables(c, node)
	b.guard.Require("apiserver.Objects", o.Logger, nil)
	return b, nil
}

// open takes what earlier agents have kept.
func (b *Objects) openCaches(o ObjectsOptions) (err error) {
	if o.CacheDir != "" {
		if b.cache, err = openObjectCache(o.CacheDir); err != nil {
			return fmt.Errorf("objects: ObjectsOptions.CacheDir: %w", err)
		}
	}
	var kept *serviceCache
	if o.ServicesFile != "" {
		var damaged error
		if kept, damaged, err = openServiceCache(o.ServicesFile); err != nil {
			return fmt.Errorf("objects: ObjectsOptions.ServicesFile: %w", err)
		}
		if damaged != nil {
			b.log.Error("services are read again", "error", damaged)
		}
	}
	b.services = newServiceTable(b.client, kept, b.log)
	return nil
}

// The kinds that [Objects.Watch] names, those of package volume.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindCSIDriver = "CSIDriver"
)

// Run watches until ctx ends, and returns nil then. It runs once. Without it nothing is known of what is watched.
func (b *Objects) Run(ctx context.Context) error {
	if err := b.guard.Begin(); err != nil {
		return fmt.Errorf("objects: %w", err)
	}
	defer b.guard.End()
	var group sync.WaitGroup
	parts := []func(context.Context) error{b.configMaps.runWatches, b.secrets.runWatches, b.services.table.Run, b.classes.Run, b.drivers.Run, b.bundles.runTable, b.requests.runTable}
	errs := make([]error, len(parts))
	for i, run := range parts {
		group.Go(func() { errs[i] = run(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

// Retain says which pods there are on this node. What none of them refers to any more is not watched and not kept. It is called
// with all of them whenever that changes, and not before they are known.
func (b *Objects) Retain(pods []*corev1.Pod) {
	r, now := collectReferences(pods), time.Now()
	b.configMaps.dropUnused(now, r.configMaps)
	b.secrets.dropUnused(now, r.secrets)
	if err := b.services.cache.retainNamespaces(r.namespaces); err != nil {
		b.log.Error("forget kept services", "error", err)
	}
	if b.cache == nil {
		return
	}
	files := map[string]bool{}
	for key := range r.configMaps {
		files[cacheFileName(kindConfigMap, key)] = true
	}
	for key := range r.secrets {
		files[cacheFileName(kindSecret, key)] = true
	}
	b.addReferencedFiles(pods, files)
	if err := b.cache.retainFiles(files); err != nil {
		b.log.Error("forget kept objects", "error", err)
	}
}

// ConfigMap returns a config map as it is now.
func (b *Objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	if o, ok := b.configMaps.getIfCurrent(namespace, name); ok {
		return o, nil
	}
	o, err := b.readConfigMaps.doShared(ctx, kubeapi.Key(namespace, name), func(ctx context.Context) (*corev1.ConfigMap, error) {
		ctx, cancel := b.withReadTimeout(ctx)
		defer cancel()
		return readObject(ctx, b.client, kubeapi.ConfigMaps, namespace, name)
	})
	return b.cacheOrLoadConfigMap(o, err, namespace, name)
}

// Secret returns a secret as it is now.
func (b *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	if o, ok := b.secrets.getIfCurrent(namespace, name); ok {
		return o, nil
	}
	o, err := b.readSecrets.doShared(ctx, kubeapi.Key(namespace, name), func(ctx context.Context) (*corev1.Secret, error) {
		ctx, cancel := b.withReadTimeout(ctx)
		defer cancel()
		return readObject(ctx, b.client, kubeapi.Secrets, namespace, name)
	})
	return b.cacheOrLoadSecret(o, err, namespace, name)
}

// keptWait is how long an API server is asked before what is kept has to do.
const cacheFallbackWait = 3 * time.Second

// readLimit bounds a read where there is something else to take.
func (b *Objects) withReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.cache == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, cacheFallbackWait)
}

// configMap keeps what was read, or returns what is kept if nobody answers.
func (b *Objects) cacheOrLoadConfigMap(o *corev1.ConfigMap, err error, namespace, name string) (*corev1.ConfigMap, error) {
	if b.cache == nil {
		return orNil(o, err)
	}
	if err == nil {
		b.cacheObject(kindConfigMap, &corev1.ConfigMap{ObjectMeta: minimalMeta(o.ObjectMeta), Data: o.Data, BinaryData: o.BinaryData, Immutable: o.Immutable})
		return o, nil
	}
	o = &corev1.ConfigMap{}
	return orNil(o, b.loadFromCache(kindConfigMap, namespace, name, o, err))
}

// secret does the same for secrets.
func (b *Objects) cacheOrLoadSecret(o *corev1.Secret, err error, namespace, name string) (*corev1.Secret, error) {
	if b.cache == nil {
		return orNil(o, err)
	}
	if err == nil {
		b.cacheObject(kindSecret, &corev1.Secret{ObjectMeta: minimalMeta(o.ObjectMeta), Data: o.Data, Type: o.Type, Immutable: o.Immutable})
		return o, nil
	}
	o = &corev1.Secret{}
	return orNil(o, b.loadFromCache(kindSecret, namespace, name, o, err))
}

func (b *Objects) cacheObject(kind string, o kubeapi.Object) {
	if err := b.cache.storeObject(kind, o); err != nil {
		b.log.Error("keep object", "error", err)
	}
}

// recall reads a kept object in place of one that nobody can be asked for, and forgets one that is gone.
func (b *Objects) loadFromCache(kind, namespace, name string, o kubeapi.Object, err error) error {
	if !isUnavailable(err) {
		if isNotFound(err) {
			if err := b.cache.removeObject(kind, namespace, name); err != nil {
				b.log.Error("forget kept object", "error", err)
			}
		}
		return err
	}
	if b.cache.loadObject(kind, namespace, name, o) != nil {
		return err // that is what there is to be said
	}
	b.log.Info("API server is away: kept object is used", "kind", kind, "namespace", namespace, "name", name)
	return nil
}

// Services returns the services of a namespace that have an address.
func (b *Objects) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	return b.services.listServices(ctx, namespace)
}

func orNil[T any](o *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}
