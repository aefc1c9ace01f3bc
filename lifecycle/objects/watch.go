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

// Kinds of objects, as reported by Watch.
const (
	KindConfigMap = "ConfigMap"
	KindSecret    = "Secret"
	KindService   = "Service"
	KindClaim     = "PersistentVolumeClaim"
	KindPV        = "PersistentVolume"
	KindCSIDriver = "CSIDriver"
)

// maxWatched is the maximum number of directories that [Dir.Watch] watches, for all namespaces and kinds.
const maxWatched = 1000

// errReplaced is the error of a watch whose root directory was removed or renamed. The path may now name another directory.
var errReplaced = errors.New("the directory was removed or renamed")

// Watch calls changed(kind, namespace, name) for each object that is put or deleted. The call runs in the goroutine that
// puts or deletes the object. Watch returns nil when ctx ends.
func (m *Memory) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	return m.watchers.Watch(ctx, changed)
}

// Watch calls changed for each object whose file is written, renamed or removed. An empty argument means any kind, namespace
// or name, for example after a directory was removed. Watch returns nil when ctx ends. After an error, for example because
// the root directory does not exist, it reports no more changes.
func (d *Dir) Watch(ctx context.Context, changed func(kind, namespace, name string)) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch objects in %s: %w", d.root, err)
	}
	defer watcher.Close()
	w := &dirWatch{root: filepath.Clean(d.root), watcher: watcher, changed: changed, dirs: map[string]bool{}}
	if err := w.runWatch(ctx); err != nil {
		return fmt.Errorf("watch objects in %s: %w", d.root, err)
	}
	return nil
}

// dirWatch is the state of one call of [Dir.Watch].
type dirWatch struct {
	root    string
	watcher *fsnotify.Watcher
	changed func(kind, namespace, name string)
	dirs    map[string]bool // the watched directories
}

func (w *dirWatch) runWatch(ctx context.Context) error {
	if err := w.addDir(w.root, 0); err != nil {
		return err
	}
	w.changed("", "", "") // changes before the watch were not reported
	for {
		select {
		case <-ctx.Done():
			return nil
		case err, ok := <-w.watcher.Errors:
			if !ok || !errors.Is(err, fsnotify.ErrEventOverflow) {
				return err
			}
			return errors.New("the event queue of the kernel overflowed")
		case e, ok := <-w.watcher.Events:
			if !ok {
				return errReplaced
			}
			if err := w.handleEvent(e); err != nil {
				return err
			}
		}
	}
}

// dirLevels is the number of directory levels between the root and a file: namespace and kind.
const dirLevels = 2

// addDir watches a directory and its subdirectories. level is the depth of the directory below the root; deeper levels than
// dirLevels are not watched.
func (w *dirWatch) addDir(dir string, level int) error {
	if len(w.dirs) >= maxWatched {
		return fmt.Errorf("more than %d directories", maxWatched)
	}
	if err := w.watcher.Add(dir); err != nil {
		return err
	}
	w.dirs[dir] = true
	if level == dirLevels {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path) // may be a link to a directory
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if err := w.addDir(path, level+1); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// handleEvent calls changed for the objects that a file event concerns. If the event is the creation of a directory, it also
// watches this directory.
func (w *dirWatch) handleEvent(event fsnotify.Event) error {
	removed := event.Has(fsnotify.Remove) || event.Has(fsnotify.Rename)
	if event.Name == w.root {
		if removed {
			return errReplaced
		}
		return nil
	}
	rest, err := filepath.Rel(w.root, event.Name)
	if err != nil {
		return err
	}
	parts := strings.Split(filepath.ToSlash(rest), "/")
	if len(parts) > dirLevels {
		w.reportFile(parts)
		return nil
	}
	if w.dirs[event.Name] && removed {
		delete(w.dirs, event.Name)
		_ = w.watcher.Remove(event.Name) // a renamed directory is still watched
	}
	if info, err := os.Stat(event.Name); err == nil && info.IsDir() && event.Has(fsnotify.Create) && !strings.HasPrefix(parts[len(parts)-1], ".") {
		if err := w.addDir(event.Name, len(parts)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if kind := clusterKinds()[parts[0]]; kind != "" {
		w.reportObject(kind, "", parts[len(parts)-1])
		return nil
	}
	w.changed("", parts[0], "")
	return nil
}

// clusterKinds returns a map from the name of a directory to the kind of the cluster-scoped objects in it.
func clusterKinds() map[string]string {
	return map[string]string{"persistentvolumes": KindPV, "csidrivers": KindCSIDriver}
}

// reportFile calls changed for the namespaced object in the file NAMESPACE/KIND/NAME, if its kind is known.
func (w *dirWatch) reportFile(parts []string) {
	kinds := map[string]string{
		"configmaps": KindConfigMap, "secrets": KindSecret, "services": KindService, "persistentvolumeclaims": KindClaim,
	}
	if kind, known := kinds[parts[1]]; known {
		w.reportObject(kind, parts[0], parts[2])
	}
}

// reportObject calls changed for the object in a changed file, or for all objects in a changed directory.
func (w *dirWatch) reportObject(kind, namespace, file string) {
	name, manifest := strings.CutSuffix(file, extension)
	switch {
	case manifest && name != "" && name[0] != '.':
		w.changed(kind, namespace, name)
	case clusterKinds()[file] == kind:
		w.changed(kind, "", "")
	}
}
