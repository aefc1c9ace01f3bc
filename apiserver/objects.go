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

// ObjectsOptions configures [Objects]. The zero value stores nothing on disk.
type ObjectsOptions struct {
	// CacheDir is an absolute directory for copies of the objects that pods refer to, readable by this user only. The copies are
	// used while the API server is unavailable. For services see ServicesFile. Empty: no copies.
	CacheDir string
	// ServicesFile is an absolute path of a file that stores the services of namespaces with pods. A restarted agent reads it while
	// the API server is unavailable. Empty: without it, no container with service variables starts before the first list.
	ServicesFile string
	// Logger gets the errors of CacheDir and ServicesFile. Nil means that of the Source.
	Logger *slog.Logger
}

// Objects reads and watches the API objects that the pods of this node refer to. A config map or secret for an environment
// variable is read when it is needed; for volumes see [Objects.Volumes]. Services, runtime classes and CSI drivers of the whole
// cluster are watched.
//
// An error wraps [fs.ErrNotExist] if the object does not exist; any other error means that its state is unknown. Returned objects
// are shared and must not be changed. All methods may be called from any goroutine.
type Objects struct {
	client *kubeapi.Client
	node   string
	log    *slog.Logger
	guard  runonce.Guard
	cache  *objectCache // copies on disk; nil: off

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

// Objects returns the reader of the API objects that the pods of the node refer to. It opens CacheDir and ServicesFile, but
// sends no request. An error names the option that cannot be used. Call it once per agent.
func (s *Source) Objects(opts ObjectsOptions) (*Objects, error) {
	if opts.Logger == nil {
		opts.Logger = s.opts.Logger
	}
	c, node := s.client, s.opts.NodeName
	b := &Objects{client: c, node: node, log: opts.Logger, driversReady: make(chan struct{})}
	if err := b.openCaches(opts); err != nil {
		return nil, err
	}
	plain, err := c.WithBudget(directReadQPS, directReadBurst)
	if err != nil {
		return nil, err
	}
	b.configMaps = newObjectWatcher(c, plain, kubeapi.ConfigMaps, isImmutableConfigMap, func(namespace, name string) { b.watchers.Notify(kindConfigMap, namespace, name) })
	b.secrets = newObjectWatcher(c, plain, kubeapi.Secrets, isImmutableSecret, func(namespace, name string) { b.watchers.Notify(kindSecret, namespace, name) })
	b.classes = kubeapi.NewTable(kubeapi.In(c, kubeapi.RuntimeClasses, ""), kubeapi.TableOptions[*nodev1.RuntimeClass, string]{
		Transform: func(opts *nodev1.RuntimeClass) string { return opts.Handler },
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
	b.guard.Require("apiserver.Objects", opts.Logger, nil)
	return b, nil
}

// openCaches opens the configured caches on disk: API objects in CacheDir, and services in ServicesFile.
func (b *Objects) openCaches(opts ObjectsOptions) (err error) {
	if opts.CacheDir != "" {
		if b.cache, err = openObjectCache(opts.CacheDir); err != nil {
			return fmt.Errorf("objects: ObjectsOptions.CacheDir: %w", err)
		}
	}
	var kept *serviceCache
	if opts.ServicesFile != "" {
		var damaged error
		if kept, damaged, err = openServiceCache(opts.ServicesFile); err != nil {
			return fmt.Errorf("objects: ObjectsOptions.ServicesFile: %w", err)
		}
		if damaged != nil {
			b.log.Error("service cache is damaged: services are listed again", "error", damaged)
		}
	}
	b.services = newServiceTable(b.client, kept, b.log)
	return nil
}

// The object kinds that [Objects.Watch] reports, as package volume names them.
const (
	kindConfigMap = "ConfigMap"
	kindSecret    = "Secret"
	kindCSIDriver = "CSIDriver"
)

// Run watches objects until ctx ends, and then returns nil. Before Run, methods that read a watched object return an error.
// A second call of Run returns an error.
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

// Retain stops the watches and deletes the cached copies of objects to which no pod in pods refers. pods must contain all
// pods of this node. Call Retain after each change of these pods.
func (b *Objects) Retain(pods []*corev1.Pod) {
	r, now := collectReferences(pods), time.Now()
	b.configMaps.dropUnused(now, r.configMaps)
	b.secrets.dropUnused(now, r.secrets)
	if err := b.services.cache.retainNamespaces(r.namespaces); err != nil {
		b.log.Error("remove cached services", "error", err)
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
		b.log.Error("remove cached objects", "error", err)
	}
}

// ConfigMap returns a config map, from its watch if that is up to date, and otherwise by a GET request. While the API server is
// unavailable, it returns the cached copy in CacheDir.
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

// Secret returns a secret. While the secret is watched and the watch is up to date, it sends no request. Otherwise it sends
// a GET request. While the API server is unavailable, it returns the cached copy in CacheDir.
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

// cacheFallbackWait is how long a request to the API server may take before a cached copy is used instead.
const cacheFallbackWait = 3 * time.Second

// withReadTimeout limits ctx to cacheFallbackWait if objects are cached on disk, so that a read falls back to the cache
// soon. Without a cache it returns ctx unchanged.
func (b *Objects) withReadTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.cache == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, cacheFallbackWait)
}

// cacheOrLoadConfigMap caches the config map of a successful read, or returns the cached copy if the API server is unavailable.
func (b *Objects) cacheOrLoadConfigMap(configMap *corev1.ConfigMap, err error, namespace, name string) (*corev1.ConfigMap, error) {
	if b.cache == nil {
		return orNil(configMap, err)
	}
	if err == nil {
		b.cacheObject(kindConfigMap, &corev1.ConfigMap{ObjectMeta: minimalMeta(configMap.ObjectMeta), Data: configMap.Data, BinaryData: configMap.BinaryData, Immutable: configMap.Immutable})
		return configMap, nil
	}
	configMap = &corev1.ConfigMap{}
	return orNil(configMap, b.loadFromCache(kindConfigMap, namespace, name, configMap, err))
}

// cacheOrLoadSecret caches the secret of a successful read, or returns the cached copy if the API server is unavailable.
func (b *Objects) cacheOrLoadSecret(secret *corev1.Secret, err error, namespace, name string) (*corev1.Secret, error) {
	if b.cache == nil {
		return orNil(secret, err)
	}
	if err == nil {
		b.cacheObject(kindSecret, &corev1.Secret{ObjectMeta: minimalMeta(secret.ObjectMeta), Data: secret.Data, Type: secret.Type, Immutable: secret.Immutable})
		return secret, nil
	}
	secret = &corev1.Secret{}
	return orNil(secret, b.loadFromCache(kindSecret, namespace, name, secret, err))
}

// cacheObject writes the object to the cache on disk. It only logs an error.
func (b *Objects) cacheObject(kind string, object kubeapi.Object) {
	if err := b.cache.storeObject(kind, object); err != nil {
		b.log.Error("cache object", "error", err)
	}
}

// loadFromCache decodes the cached copy into object if err means that the API server is unavailable. Otherwise it returns err.
func (b *Objects) loadFromCache(kind, namespace, name string, object kubeapi.Object, err error) error {
	if !isUnavailable(err) {
		if isNotFound(err) {
			// the object was deleted
			if err := b.cache.removeObject(kind, namespace, name); err != nil {
				b.log.Error("remove cached object", "error", err)
			}
		}
		return err
	}
	if b.cache.loadObject(kind, namespace, name, object) != nil {
		return err // the first error tells more than a missing copy
	}
	b.log.Info("API server is unavailable: cached object is used", "kind", kind, "namespace", namespace, "name", name)
	return nil
}

// Services returns the services of a namespace, except headless services, for the environment variables of containers.
func (b *Objects) Services(ctx context.Context, namespace string) ([]*corev1.Service, error) {
	return b.services.listServices(ctx, namespace)
}

// orNil returns object, or nil if err is set.
func orNil[T any](object *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return object, nil
}
