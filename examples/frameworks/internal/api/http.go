package api

import (
	"encoding/json"
	"io"
	"net/http"
)

// Handlers for the frameworks that use net/http handlers.

func (c *Comments) HandleList(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(c.List()) // if it fails, the client is gone
}

func (c *Comments) HandleAdd(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1000))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.Add(text)
	w.WriteHeader(http.StatusCreated)
}

func (c *Comments) HandleClear(w http.ResponseWriter, r *http.Request) { c.Clear() }

func (c *Comments) HandleStream(w http.ResponseWriter, r *http.Request) {
	c.Stream(r.Context(), w, http.NewResponseController(w).Flush)
}

func HandleUpgrade(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	Echo(conn, buffered)
}
