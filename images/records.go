// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed81659283/nodeagent/internal/atomicfile"
	"github.com/seed81659283/nodeagent/internal/notexist"
)

// filePrefix is the prefix of record file names, before the SHA-256 of the image name or ID. Source:
// pkg/kubelet/images/pullmanager/fs_pullrecords.go.
const filePrefix = "sha256-"

// recordStore reads and writes the records of pulls. A nil recordStore has no records. Writes of files hold only recordMu, so
// that pods whose images exist do not wait for the disk.
type recordStore struct {
	intentDir string // directory of pullIntents
	pulledDir string // directory of pulledRecords

	recordMu sync.Mutex // serializes changes of pulledRecords

	mu         sync.Mutex     // guards pullCounts and the removal of pullIntents
	pullCounts map[string]int // number of running pulls by image name
}

func newRecordStore(dir string) *recordStore {
	if dir == "" {
		return nil
	}
	return &recordStore{
		intentDir:  filepath.Join(dir, "pulling"),
		pulledDir:  filepath.Join(dir, "pulled"),
		pullCounts: make(map[string]int),
	}
}

// recordPath returns the path of a record in the directory dir. The subject of the record is an image name or an image ID.
func recordPath(dir, subject string) string {
	return filepath.Join(dir, fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(subject))))
}

// recordPullStart writes an intent, which is the record of a started pull. If it succeeds, the caller must call
// recordPullEnd or recordPullSuccess after the pull.
func (s *recordStore) recordPullStart(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	s.pullCounts[image]++
	s.mu.Unlock()
	err := writeRecord(s.intentDir, image, pullIntent{typeMeta: typeMeta{pullIntentKind, recordVersion}, Image: image})
	if err != nil {
		return errors.Join(err, s.recordPullEnd(image))
	}
	return nil
}

// recordPullEnd removes the intent of image, which is the record of a started pull. It keeps the intent while another pull
// of this image is running.
func (s *recordStore) recordPullEnd(image string) error {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pullCounts[image] > 1 {
		s.pullCounts[image]--
		return nil
	}
	delete(s.pullCounts, image)
	return removeFile(recordPath(s.intentDir, image))
}

// recordPullSuccess records the credentials of a successful pull, and then its end.
func (s *recordStore) recordPullSuccess(image, repository, imageID string, used recordedCredentials, now time.Time) error {
	if s == nil {
		return nil
	}
	if err := s.addCredentials(repository, imageID, used, now); err != nil {
		// The intent remains, so that the image does not count as preloaded.
		return err
	}
	return s.recordPullEnd(image)
}

// addCredentials adds credentials to the record of an image. It replaces an unreadable record.
func (s *recordStore) addCredentials(repository, imageID string, added recordedCredentials, now time.Time) error {
	s.recordMu.Lock()
	defer s.recordMu.Unlock()
	record, found, err := s.readRecord(imageID)
	before := record.CredentialMapping[repository]
	after := before.merge(added)
	if err == nil && found && after.isEqual(before) {
		return nil
	}
	if record.CredentialMapping == nil {
		record.CredentialMapping = make(map[string]recordedCredentials)
	}
	if !after.isEqual(recordedCredentials{}) {
		record.CredentialMapping[repository] = after
	}
	record.typeMeta = typeMeta{pulledRecordKind, recordVersion}
	record.ImageRef = imageID
	record.LastUpdatedTime = now.UTC().Truncate(time.Second)
	return writeRecord(s.pulledDir, imageID, record)
}

// readRecord returns the record of the image with this ID, or found false if there is none.
func (s *recordStore) readRecord(id string) (record pulledRecord, found bool, err error) {
	path := recordPath(s.pulledDir, id)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return record, false, nil
	}
	if err != nil {
		return record, false, err
	}
	if record, err = decodePulledRecord(data); err != nil {
		return record, false, fmt.Errorf("read %s: %w", path, err)
	}
	if record.ImageRef != id {
		return pulledRecord{}, false, nil
	}
	return record, true, nil
}

// hasRecord reports whether the image with this ID has a record, even an unreadable one.
func (s *recordStore) hasRecord(id string) bool {
	if s == nil {
		return false
	}
	info, err := os.Lstat(recordPath(s.pulledDir, id))
	return err == nil && info.Mode().IsRegular()
}

// lookupCredentials returns the recorded credentials of an image. pulled is true if an agent has at least started to pull
// it.
func (s *recordStore) lookupCredentials(image, repository, imageID string) (credentials recordedCredentials, pulled bool, err error) {
	// The intent is read first: if a pull ends in between, its record is found.
	begun, intentErr := s.isPullStarted(image)
	r, found, err := s.readRecord(imageID)
	if err != nil || found {
		return r.CredentialMapping[repository], found, err
	}
	return credentials, begun, intentErr
}

// isPullStarted reports whether this or a previous agent has started a pull of the image and not recorded its end.
func (s *recordStore) isPullStarted(image string) (bool, error) {
	path := recordPath(s.intentDir, image)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	i, err := decodeIntent(data)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", path, err)
	}
	return i.Image == image, nil
}

// visitRecords calls visit for each record in the directory dir, and joins the errors. If dir does not exist, it returns
// nil.
func visitRecords(dir string, visit func(path string, data []byte) error) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() || !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		path := filepath.Join(dir, e.Name())
		data, err := os.ReadFile(path)
		if err == nil {
			err = visit(path, data)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// writeRecord writes an object as a record to the directory dir. The subject of the record is an image name or an image ID.
func writeRecord(dir, subject string, object any) error {
	data, err := encodeRecord(object)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.WriteFile(recordPath(dir, subject), data, 0o600)
}

// removeFile removes the file at path. It returns nil if the file does not exist.
func removeFile(path string) error {
	if err := notexist.Ignore(os.Remove(path)); err != nil {
		return err
	}
	return nil
}
