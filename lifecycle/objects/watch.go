// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/fsnotify/fsnotify"
)

// The kinds of objects, as Watch names them.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindService   = "Service"
	KindClaim     = "PersistentVolumeClaim"
	KindPV        = "PersistentVolume"
	KindCSIDriver = "CSIDriver"
)

// maxWatched is how many directories [Dir.Watch] watches: of all namespaces and kinds.
const maxWatched = 1000

// errReplaced is why a watch ends when its directory is no more: another one may have its name by now.
var errReplaced = errors.New("the directory was removed or renamed")

// Watch calls changed with the kind, the namespace and the name of each object that is put or deleted, until ctx ends, with whose
// end it returns nil. It is called from the goroutine that changes the object.
func (m *Memory) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return m.watchers.Watch(ctx, changed)
}

// Watch calls changed with the kind, the namespace and the name of each object whose file is written, renamed or removed, until
// ctx ends, with whose end it returns nil. An empty argument stands for any kind, namespace or name. An error says why there is no
// watch, such as that the directory does not exist: what changes from then on is not told.
func (d *Dir) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch objects in %s: %w", d.root, err)
	}
	defer watcher.Close()
	w := &dirWatch{root: filepath.Clean(d.root), watcher: watcher, changed: changed, dirs: map[string]bool{}}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("watch objects in %s: %w", d.root, err)
	}
	return nil
}

// dirWatch is one watch of a directory of objects.
type dirWatch struct {
	root    string
	watcher *fsnotify.Watcher
	changed func(kind, namespace, name string)
	dirs    map[string]bool // that are watched
}

func (w *dirWatch) run(ctx context.Context) error {
	if err := w.add(w.root, 0); err != nil {
		return err
	}
	w.changed("", "", "") // what changed before the watch is not told otherwise
	for {
		select {
		case <-ctx.Done():
			return nil
		case err, ok := <-w.watcher.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			return errors.New("more changes than the kernel keeps")
		case e, ok := <-w.watcher.Events:
			if !ok {
				return errReplaced
			}
			if err := w.event(e); err != nil {
				return err
			}
		}
	}
}

// levels is how many directories lead from the root to a file: a namespace and a kind.
const levels = 2

// add watches a directory and, above the level of files, those in it.
func (w *dirWatch) add(dir string, level int) error {
	if len(w.dirs) >= maxWatched {
		return fmt.Errorf("more than %d directories", maxWatched)
	}
	if err := w.watcher.Add(dir); err != nil {
		return err
	}
	w.dirs[dir] = true
	if level == levels {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // it may be a link to a directory
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := w.add(path, level+1); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// event tells what has changed, and watches a directory that is new.
func (w *dirWatch) event(e fsnotify.Event) error {
	gone := e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	if e.Name == w.root {
		if gone {
			return errReplaced
		}
		return nil
	}
	rest, err := filepath.Rel(w.root, e.Name)
	if err != nil {
		return err
	}
	parts := strings.Split(filepath.ToSlash(rest), "/")
	if len(parts) > levels {
		w.file(parts)
		return nil
	}
	if w.dirs[e.Name] && gone {
		delete(w.dirs, e.Name)
		_ = w.watcher.Remove(e.Name) // one that was renamed is watched still
	}
	if info, err := os.Stat(e.Name); err == nil && info.IsDir() && e.Has(fsnotify.Create) && !strings.HasPrefix(parts[len(parts)-1], ".") {
		if err := w.add(e.Name, len(parts)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if kind := clusterKinds()[parts[0]]; kind != "" {
		w.object(kind, "", parts[len(parts)-1])
		return nil
	}
	w.changed("", parts[0], "")
	return nil
}

// clusterKinds returns the kinds of objects that are in no namespace, by their directories.
func clusterKinds() map[string]string {
	return map[string]string{"persistentvolumes": KindPV, "csidrivers": KindCSIDriver}
}

// file tells of the object whose file has changed, if it is the file of one.
func (w *dirWatch) file(parts []string) {
	kinds := map[string]string{
		"configmaps": KindConfigMap, "secrets": KindSecret, "services": KindService, "persistentvolumeclaims": KindClaim,
	}
	if kind, known := kinds[parts[1]]; known {
		w.object(kind, parts[0], parts[2])
	}
}

// object tells of an object whose file has changed. The directory of objects of the cluster may be new, with some in it.
func (w *dirWatch) object(kind, namespace, file string) {
	name, manifest := strings.CutSuffix(file, extension)
	switch {
	case manifest && name != "" && name[0] != '.':
		w.changed(kind, namespace, name)
	case clusterKinds()[file] == kind:
		w.changed(kind, "", "")
	}
}
