package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// asset is a file for browsers.
type asset struct {
	kind string // media type
	body []byte
}

// assetKinds are the media types by the end of a name.
var assetKinds = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// loadAssets names every file by its content.
func (h *Handler) loadAssets() error {
	h.assets, h.named = map[string]asset{}, map[string]string{}
	files, err := assetFiles.ReadDir("assets")
	if err != nil {
		return err
	}
	for _, f := range files {
		body, err := assetFiles.ReadFile("assets/" + f.Name())
		if err != nil {
			return err
		}
		sum := sha256.Sum256(body)
		end := path.Ext(f.Name())
		name := strings.TrimSuffix(f.Name(), end) + "." + hex.EncodeToString(sum[:8]) + end
		h.assets[name], h.named[f.Name()] = asset{kind: assetKinds[end], body: body}, name
	}
	return nil
}

// serveAsset sends a file of ours; its name says its content, so it never changes.
func (h *Handler) serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := h.assets[r.PathValue("name")]
	if !ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("no such file; load the page again\n"))
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body)
}
